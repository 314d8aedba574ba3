/* read.c -- PTX as text becomes instructions over numbered slots. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/ptx/inside.h"

struct reader {
	struct ptx *ptx;
	struct ptx_kernel *kernel; /* Within which we are. */
	char *error;
	size_t error_bytes;
};

static bool wrong(struct reader *r, const char *format, ...)
{
	va_list values;

	va_start(values, format);
	(void)vsnprintf(r->error, r->error_bytes, format, values);
	va_end(values);
	return false;
}

/* Room for one more, zeroed; NULL: out of memory. */
static void *another(void *array, uint32_t count, size_t size)
{
	char *more;

	if ((count & (count - 1)) != 0)
		return array;
	more = realloc(array, (count == 0 ? 1 : 2 * (size_t)count) * size);
	return more;
}

/* ---- Operands ---- */

static bool constant(struct reader *r, uint64_t value, uint32_t *slot)
{
	struct ptx_kernel *k = r->kernel;

	k->constants = another(k->constants, k->constant_count, sizeof(*k->constants));
	if (k->constants == NULL)
		return wrong(r, "out of memory");
	k->constants[k->constant_count] = value;
	*slot = k->registers + k->constant_count++;
	return true;
}

static bool operand(struct reader *r, const char *text, uint32_t *slot)
{
	static const char *const specials[PTX_SPECIALS] = { "%tid.x", "%ntid.x", "%ctaid.x",
							    "%nctaid.x" };
	struct ptx_kernel *k = r->kernel;
	char *end;

	for (uint32_t i = 0; i < PTX_SPECIALS; i++)
		if (strcmp(text, specials[i]) == 0) {
			*slot = i;
			return true;
		}
	for (uint32_t i = 0; text[0] == '%' && i < k->bank_count; i++) {
		size_t length = strlen(k->banks[i].prefix);
		unsigned long number;

		if (strncmp(text, k->banks[i].prefix, length) != 0 || !isdigit(text[length]))
			continue;
		number = strtoul(text + length, &end, 10);
		*slot = k->banks[i].first + (uint32_t)number;
		return *end == '\0' && number < k->banks[i].count ? true
								  : wrong(r, "register %s", text);
	}
	if (strcmp(text, k->parameter) == 0) /* Its address: parameters begin at 0. */
		return constant(r, 0, slot);
	if (text[0] == '0' && (text[1] == 'f' || text[1] == 'd')) {
		uint64_t bits = strtoull(text + 2, &end, 16);

		return *end == '\0' ? constant(r, bits, slot) : wrong(r, "constant %s", text);
	}
	if (isdigit(text[0]) || text[0] == '-') {
		uint64_t value =
			text[0] == '-' ? (uint64_t)strtoll(text, &end, 0) : strtoull(text, &end, 0);

		return *end == '\0' ? constant(r, value, slot) : wrong(r, "constant %s", text);
	}
	return wrong(r, "operand %s", text);
}

/* "a" or "{a, b}", cut in place. */
static bool operands(struct reader *r, char *text, uint32_t *slots, uint32_t *count)
{
	char *place, *one;

	*count = 0;
	if (text[0] != '{') {
		*count = 1;
		return operand(r, text, slots);
	}
	for (one = strtok_r(text, "{}, ", &place); one != NULL;
	     one = strtok_r(NULL, "{}, ", &place)) {
		if (*count == PTX_OPERANDS)
			return wrong(r, "a list of more than %d", PTX_OPERANDS);
		if (!operand(r, one, &slots[(*count)++]))
			return false;
	}
	return true;
}

/* "[base+offset]", cut in place. */
static bool address(struct reader *r, char *text, struct ptx_instruction *in, uint32_t *slot)
{
	char *end = strchr(text, ']'), *offset;

	if (text[0] != '[' || end == NULL)
		return wrong(r, "address %s", text);
	*end = '\0';
	offset = strpbrk(text, "+");
	if (offset != NULL) {
		*offset++ = '\0';
		in->offset = strtoll(offset, &end, 10);
		if (*end != '\0')
			return wrong(r, "offset %s", offset);
	}
	return operand(r, text + 1, slot);
}

/* ---- Opcodes ---- */

static const struct {
	const char *name;
	enum ptx_op op;
	uint32_t from_count;
} opcodes[] = {
	{ "mov", PTX_MOV, 1 },   { "cvt", PTX_CVT, 1 },         { "cvta", PTX_MOV, 1 },
	{ "ld", PTX_LD, 1 },     { "st", PTX_ST, 0 },           { "add", PTX_ADD, 2 },
	{ "sub", PTX_SUB, 2 },   { "mul", PTX_MUL, 2 },         { "mad", PTX_MAD, 3 },
	{ "div", PTX_DIV, 2 },   { "rem", PTX_REM, 2 },         { "min", PTX_MIN, 2 },
	{ "max", PTX_MAX, 2 },   { "neg", PTX_NEG, 1 },         { "abs", PTX_ABS, 1 },
	{ "not", PTX_NOT, 1 },   { "and", PTX_AND, 2 },         { "or", PTX_OR, 2 },
	{ "xor", PTX_XOR, 2 },   { "shl", PTX_SHL, 2 },         { "shr", PTX_SHR, 2 },
	{ "setp", PTX_SETP, 2 }, { "selp", PTX_SELP, 3 },       { "prmt", PTX_PRMT, 3 },
	{ "bfi", PTX_BFI, 4 },   { "bfe", PTX_BFE, 3 },         { "rcp", PTX_RCP, 1 },
	{ "sqrt", PTX_SQRT, 1 }, { "fma", PTX_FMA, 3 },         { "bra", PTX_BRA, 0 },
	{ "ret", PTX_RET, 0 },   { "bar", PTX_WARP, 1 },        { "redux", PTX_REDUX_MAX, 2 },
	{ "shfl", PTX_SHFL, 4 }, { "nanosleep", PTX_SLEEP, 1 },
};

static bool type_of(const char *word, struct ptx_type *type)
{
	static const struct {
		char letter;
		enum ptx_class kind;
	} kinds[] = {
		{ 'b', PTX_BITS }, { 'u', PTX_UNSIGNED }, { 's', PTX_SIGNED }, { 'f', PTX_FLOAT }
	};
	char *end;
	long bits;

	if (strcmp(word, "pred") == 0) {
		*type = (struct ptx_type) { PTX_PRED, 1 };
		return true;
	}
	for (uint32_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (word[0] != kinds[i].letter || !isdigit(word[1]))
			continue;
		bits = strtol(word + 1, &end, 10);
		if (*end != '\0' || (bits != 8 && bits != 16 && bits != 32 && bits != 64))
			return false;
		*type = (struct ptx_type) { (uint8_t)kinds[i].kind, (uint8_t)bits };
		return true;
	}
	return false;
}

/* A word between the opcode and its type. */
static bool modifier(struct ptx_instruction *in, const char *word, bool *param)
{
	static const char *const compares[] = { "eq", "ne", "lt", "le", "gt", "ge", "nan", "num" };
	const bool real = in->type.kind == PTX_FLOAT;

	for (uint32_t i = 0; in->op == PTX_SETP && i < sizeof(compares) / sizeof(*compares); i++) {
		if (strncmp(word, compares[i], strlen(compares[i])) != 0)
			continue;
		in->compare = (enum ptx_compare)i;
		word += strlen(compares[i]);
		in->unordered = strcmp(word, "u") == 0; /* What is no number compares so. */
		return word[0] == '\0' || (in->unordered && real && i <= PTX_GE);
	}
	if (strcmp(word, "ftz") == 0) {
		in->flush = true;
		return real && in->type.bits == 32;
	}
	if (strcmp(word, "rn") == 0) /* What is exact needs none. */
		return in->op == PTX_CVT || real;
	if (strcmp(word, "rzi") == 0 || strcmp(word, "rni") == 0) {
		in->toward_0 = word[1] == 'z';
		return in->op == PTX_CVT && in->type.kind == PTX_SIGNED && in->type.bits == 32 &&
		       in->from_type.kind == PTX_FLOAT && in->from_type.bits == 32;
	}
	if (strcmp(word, "lo") == 0 || strcmp(word, "hi") == 0 || strcmp(word, "wide") == 0) {
		in->part = word[0] == 'l' ? PTX_LOW : word[0] == 'h' ? PTX_HIGH : PTX_WIDE;
		return (in->op == PTX_MUL || (in->op == PTX_MAD && word[0] != 'h')) && !real;
	}
	if (strcmp(word, "param") == 0) {
		*param = true;
		return in->op == PTX_LD;
	}
	if (strcmp(word, "global") == 0 || strcmp(word, "v2") == 0 || strcmp(word, "v4") == 0)
		return in->op == PTX_LD || in->op == PTX_ST;
	/* Threads run one after another, so all that is written is seen. */
	if (strcmp(word, "sys") == 0)
		return in->op == PTX_LD || in->op == PTX_ST;
	if (strcmp(word, "acquire") == 0 || strcmp(word, "release") == 0)
		return in->op == (word[0] == 'a' ? PTX_LD : PTX_ST);
	return strcmp(word, "max") == 0 && in->op == PTX_REDUX_MAX;
}

/* Opcodes whose words are not as the others': what is left to read is nothing. */
static bool whole(const char *name, struct ptx_instruction *in)
{
	static const char *const known[] = { "bra",
					     "bra.uni",
					     "ret",
					     "bar.warp.sync",
					     "cvta.to.global.u64",
					     "redux.sync.max.u32",
					     "shfl.sync.bfly.b32",
					     "nanosleep.u32" };

	for (uint32_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (strcmp(name, known[i]) == 0) {
			in->type = (struct ptx_type) { PTX_UNSIGNED, i == 4 ? 64 : 32 };
			return true;
		}
	return false;
}

static bool opcode(struct reader *r, char *name, struct ptx_instruction *in, uint32_t *from_count)
{
	char *place, *words[8], full[64];
	uint32_t count = 0, types = 1;
	bool param = false, found = false;

	(void)snprintf(full, sizeof(full), "%s", name);
	for (char *word = strtok_r(name, ".", &place); word != NULL && count < 8;
	     word = strtok_r(NULL, ".", &place))
		words[count++] = word;
	for (uint32_t i = 0; count > 0 && i < sizeof(opcodes) / sizeof(*opcodes) && !found; i++)
		if ((found = strcmp(words[0], opcodes[i].name) == 0)) {
			in->op = opcodes[i].op;
			*from_count = opcodes[i].from_count;
		}
	if (found && whole(full, in))
		return true;
	if (!found || strcmp(words[0], "cvta") == 0 || in->op == PTX_BRA || in->op == PTX_RET ||
	    in->op == PTX_WARP || in->op == PTX_REDUX_MAX || in->op == PTX_SHFL ||
	    in->op == PTX_SLEEP || count < 2 || !type_of(words[count - 1], &in->type))
		return wrong(r, "unknown opcode %s", full);
	if (in->op == PTX_CVT) {
		in->from_type = in->type;
		types = 2;
		if (count < 3 || !type_of(words[count - 2], &in->type))
			return wrong(r, "unknown opcode %s", full);
	}
	for (uint32_t i = 1; i < count - types; i++)
		if (!modifier(in, words[i], &param))
			return wrong(r, "unknown opcode %s", full);
	if (in->op == PTX_LD && param)
		in->op = PTX_LD_PARAM;
	else if ((in->op == PTX_LD || in->op == PTX_ST) && strstr(full, ".global") == NULL)
		return wrong(r, "unknown opcode %s", full);
	return true;
}

/* ---- Instructions ---- */

/* Cuts at commas outside of brackets. */
static uint32_t cut(char *text, char *parts[8])
{
	uint32_t count = 0;
	int depth = 0;

	for (char *at = text;;) {
		while (isspace(*at))
			at++;
		if (*at == '\0' || count == 8)
			return count;
		parts[count++] = at;
		for (; *at != '\0' && (*at != ',' || depth > 0); at++)
			depth += *at == '{' || *at == '[' ? 1 : *at == '}' || *at == ']' ? -1 : 0;
		if (*at == ',')
			*at++ = '\0';
	}
}

static bool arguments(struct reader *r, struct ptx_instruction *in, char *parts[8], uint32_t count,
		      uint32_t from_count)
{
	uint32_t list = 0, one;

	if (in->op == PTX_LD || in->op == PTX_LD_PARAM) {
		in->from_count = 1;
		return count == 2 && operands(r, parts[0], in->to, &in->to_count) &&
		       address(r, parts[1], in, &in->from[0]);
	}
	if (in->op == PTX_ST) { /* Its sources stand where others' targets do. */
		in->from_count = 1;
		return count == 2 && operands(r, parts[1], in->to, &in->to_count) &&
		       address(r, parts[0], in, &in->from[0]);
	}
	if (in->op == PTX_WARP || in->op == PTX_SLEEP)
		return count == 1 && operands(r, parts[0], in->from, &in->from_count);
	if (in->op == PTX_SHFL) /* "to|whether": of a whole warp's lanes each is there. */
		parts[0][strcspn(parts[0], "|")] = '\0';
	if (count != 1 + from_count || !operands(r, parts[0], in->to, &in->to_count))
		return false;
	for (uint32_t i = 0; i < from_count; i++) {
		if (from_count == 1 && in->op == PTX_MOV) {
			if (!operands(r, parts[1], in->from, &in->from_count))
				return false;
			list = in->from_count;
			continue;
		}
		if (!operands(r, parts[1 + i], &in->from[i], &one) || one != 1)
			return false;
		in->from_count = i + 1;
	}
	if (in->op == PTX_MOV && list > 1)
		in->op = PTX_PACK;
	else if (in->op == PTX_MOV && in->to_count > 1)
		in->op = PTX_UNPACK;
	return in->to_count == 1 || in->op == PTX_UNPACK;
}

/* `text` ends where the semicolon was. Targets of branches are found when all labels are known. */
static bool instruction(struct reader *r, char *text)
{
	struct ptx_kernel *k = r->kernel;
	struct ptx_instruction *in;
	char *copy = strdup(text), *at = copy, *parts[8], *name;
	uint32_t from_count = 0;
	bool right = copy != NULL;

	k->instructions = another(k->instructions, k->instruction_count, sizeof(*k->instructions));
	if (k->instructions == NULL || !right)
		return wrong(r, "out of memory");
	in = &k->instructions[k->instruction_count++];
	*in = (struct ptx_instruction) { .guard = PTX_NO_GUARD, .text = text };
	if (*at == '@') {
		in->guard_not = at[1] == '!';
		name = at + 1 + in->guard_not;
		at = name + strcspn(name, " \t");
		*at++ = '\0';
		right = operand(r, name, &in->guard);
		at += strspn(at, " \t");
	}
	name = at;
	at += strcspn(at, " \t");
	if (*at != '\0')
		*at++ = '\0';
	right = right && opcode(r, name, in, &from_count);
	if (right && in->op != PTX_BRA && in->op != PTX_RET) {
		uint32_t count = cut(at, parts);

		right = arguments(r, in, parts, count, from_count);
		if (!right && r->error[0] == '\0')
			(void)wrong(r, "operands of %s", text);
	}
	k->meets |= in->op == PTX_WARP || in->op == PTX_REDUX_MAX || in->op == PTX_SHFL;
	free(copy);
	return right;
}

static bool targets(struct reader *r)
{
	struct ptx_kernel *k = r->kernel;

	for (uint32_t i = 0; i < k->instruction_count; i++) {
		struct ptx_instruction *in = &k->instructions[i];
		const char *name = in->op == PTX_BRA ? strrchr(in->text, '$') : NULL;

		if (in->op != PTX_BRA)
			continue;
		in->target = UINT32_MAX;
		for (uint32_t j = 0; name != NULL && j < k->label_count; j++)
			if (strcmp(name, k->labels[j].name) == 0)
				in->target = k->labels[j].at;
		if (in->target == UINT32_MAX)
			return wrong(r, "label of %s", in->text);
	}
	return true;
}

/* ---- Lines ---- */

static bool registers(struct reader *r, const char *line)
{
	struct ptx_kernel *k = r->kernel;
	struct ptx_bank *bank = &k->banks[k->bank_count];

	if (k->bank_count == sizeof(k->banks) / sizeof(*k->banks) ||
	    sscanf(line, ".reg .%*s %7[%a-z]<%u>", bank->prefix, &bank->count) != 2)
		return wrong(r, "registers %s", line);
	bank->first = k->registers;
	k->registers += bank->count;
	k->bank_count++;
	return true;
}

static bool label(struct reader *r, char *line)
{
	struct ptx_kernel *k = r->kernel;

	k->labels = another(k->labels, k->label_count, sizeof(*k->labels));
	if (k->labels == NULL)
		return wrong(r, "out of memory");
	k->labels[k->label_count++] = (struct ptx_label) { line, k->instruction_count };
	return true;
}

static bool begin(struct reader *r, char *line)
{
	struct ptx *p = r->ptx;

	p->kernels = another(p->kernels, p->kernel_count, sizeof(*p->kernels));
	if (p->kernels == NULL)
		return wrong(r, "out of memory");
	r->kernel = &p->kernels[p->kernel_count++];
	*r->kernel = (struct ptx_kernel) { .name = line + strlen(".visible .entry "),
					   .parameter = p->text, /* Not yet. */
					   .registers = PTX_SPECIALS };
	line[strcspn(line, "(")] = '\0';
	return true;
}

static bool parameter(struct reader *r, char *line)
{
	char *name = strrchr(line, ' '), *size = strchr(line, '[');

	if (name == NULL || size == NULL)
		return wrong(r, "parameter %s", line);
	*size = '\0';
	r->kernel->parameter = name + 1;
	r->kernel->parameter_bytes = (uint32_t)strtoul(size + 1, NULL, 10);
	return true;
}

/* One line without comments, blanks around it and its semicolon. */
static bool line_read(struct reader *r, char *line, bool statement)
{
	size_t length = strlen(line);

	if (length == 0)
		return true;
	if (strncmp(line, ".visible .entry ", 16) == 0)
		return begin(r, line);
	if (r->kernel == NULL) /* What the text says of itself. */
		return strncmp(line, ".version", 8) == 0 || strncmp(line, ".target", 7) == 0 ||
		       strncmp(line, ".address_size 64", 16) == 0 || wrong(r, "line %s", line);
	if (strncmp(line, ".param ", 7) == 0)
		return parameter(r, line);
	if (strncmp(line, ".reg ", 5) == 0)
		return registers(r, line);
	if (line[length - 1] == ':') {
		line[length - 1] = '\0';
		return label(r, line);
	}
	if (strcmp(line, ")") == 0 || strcmp(line, "{") == 0 || strncmp(line, ".maxntid", 8) == 0 ||
	    strncmp(line, ".pragma", 7) == 0)
		return true;
	if (strcmp(line, "}") == 0)
		return targets(r);
	return statement && line[0] != '.' ? instruction(r, line) : wrong(r, "line %s", line);
}

struct ptx *ptx_read(const char *text, char *error, size_t error_bytes)
{
	struct ptx *p = calloc(1, sizeof(*p));
	struct reader r = { .ptx = p, .error = error, .error_bytes = error_bytes };
	bool right;
	char *place;

	error[0] = '\0';
	if (p == NULL || (p->text = strdup(text)) == NULL) {
		free(p);
		(void)wrong(&r, "out of memory");
		return NULL;
	}
	right = true;
	for (char *line = strtok_r(p->text, "\n", &place); line != NULL && right;
	     line = strtok_r(NULL, "\n", &place)) {
		char *comment = strstr(line, "//"), *end;
		bool statement;

		if (comment != NULL)
			*comment = '\0';
		line += strspn(line, " \t");
		for (end = line + strlen(line); end > line && isspace(end[-1]); end--)
			end[-1] = '\0';
		statement = end > line && end[-1] == ';';
		if (statement)
			end[-1] = '\0';
		right = line_read(&r, line, statement);
	}
	if (right)
		return p;
	ptx_free(p);
	return NULL;
}

void ptx_free(struct ptx *p)
{
	for (uint32_t i = 0; i < p->kernel_count; i++) {
		free(p->kernels[i].constants);
		free(p->kernels[i].instructions);
		free(p->kernels[i].labels);
	}
	free(p->kernels);
	free(p->text);
	free(p);
}

bool ptx_has(const struct ptx *p, const char *kernel)
{
	for (uint32_t i = 0; i < p->kernel_count; i++)
		if (strcmp(p->kernels[i].name, kernel) == 0)
			return true;
	return false;
}
