#!/usr/bin/env python3
"""compute_faults.py -- copies of the device's backends, each with one fault.

usage: compute_faults.py FOLDER TABLE COPY...

FOLDER has the sources. Writes a copy for each fault, in which the backend's table is
tr_compute_fault_N, and TABLE, which lists them: FAULTS(X) has an X(N, "what is wrong") of each.
A copy of a model of text has text.c in it, under other names.
"""

import pathlib
import re
import sys

FAULTS = [
    ("an operand is not transposed",
     "tr_turned(c->parameters + l->weight_offset, ins), 0.0f,",
     "tr_plain(c->parameters + l->weight_offset, outs), 0.0f,"),
    ("what a shortcut left is not added to",
     "const float *beta = c->begun[i] ? &one : &zero;",
     "const float *beta = &zero;"),
    ("a slope is added to what an earlier step left",
     "\tmemset(c->begun, 0, sizeof(c->begun));\n",
     ""),
    ("rows come behind the forward pass on the stream",
     "\tTR_TRY(upload(c, x, rows, answers, rows));\n\tTR_TRY(forward(c, &c->training));\n",
     "\tTR_TRY(forward(c, &c->training));\n\tTR_TRY(upload(c, x, rows, answers, rows));\n"),
    ("the loss comes behind the backward pass on the stream",
     "\tTR_TRY(score_begin(c, rows, c->slope[c->model.layer_count]));\n"
     "\tTR_TRY(backward(c, ready));\n",
     "\tTR_TRY(backward(c, ready));\n"
     "\tTR_TRY(score_begin(c, rows, c->slope[c->model.layer_count]));\n"),
    ("the workspace is that of another layer",
     "(found)[at_].memory > *(bytes) ? (found)[at_].memory : *(bytes);",
     "(found)[at_].memory;"),
    ("scores are read without a wait",
     "\tTR_TRY(pinned_wait(c));\n\tfor (",
     "\tfor ("),
    ("an algorithm that is not repeatable",
     "(found)[at_].determinism != CUDNN_DETERMINISTIC ||",
     ""),
    ("statistics keep a tenth",
     "1.0 - TR_NORM_MOMENTUM",
     "TR_NORM_MOMENTUM"),
    ("the gradient of a layer goes to another",
     "tr_plain(c->value[i], ins), 0.0f, c->gradient + l->weight_offset));",
     "tr_plain(c->value[i], ins), 0.0f,\n"
     "\t\t       c->gradient + l->bias_offset - l->weight_count + 1));"),
]
GPT_FAULTS = [
    ("scores are not scaled backward",
     "const float scale = 1.0f / sqrtf((float)size);",
     "const float scale = 1.0f;"),
    ("the slope of the stream is added to an old one",
     "after + TR_GPT_GAIN, &c->norm, false)",
     "after + TR_GPT_GAIN, &c->norm, true)"),
    ("the stream of another layer",
     "c->stream[number], weight(c,",
     "c->stream[0], weight(c,"),
    ("the bias of the layer before",
     "weight(c, array_of(l, TR_GPT_DOWN_BIAS))",
     "weight(c, array_of(0, TR_GPT_DOWN_BIAS))"),
    ("heads are taken for tokens",
     "merge(c, rows, 1, c->apart, l->mixed)",
     "tr_cuda_copy(c->text.cuda, l->mixed, c->apart,\n"
     "\t\t\t    rows * t * c->width * sizeof(float), c->text.error)"),
    ("keys and values change places backward",
     "tr_plain(mixed, size), 0.0f, c->apart + 2 * part, size));",
     "tr_plain(mixed, size), 0.0f, c->apart + part, size));"),
    ("tokens come behind what reads them",
     "\tTR_TRY(tr_cuda_text_upload(text, (uint32_t)n));\n",
     "#define LATER TR_TRY(tr_cuda_text_upload(text, (uint32_t)n));\n",
     "\tTR_TRY(norm_forward(c, n, array_of(0,",
     "\tLATER TR_TRY(norm_forward(c, n, array_of(0,"),
    ("scores are read without a wait",
     "\tTR_TRY(tr_cuda_text_begin(t));\n\tfor (",
     "\tfor ("),
    ("pieces of a token are left out",
     ".groups = t->pieces,",
     ".groups = t->pieces - (t->pieces > vocabulary),"),
    ("tokens are in no order",
     "w->order[next[w->in[i]]++] = (int32_t)i;",
     "w->order[i] = (int32_t)i, next[w->in[i]]++;"),
    ("the last rows of a sum are left out",
     "last.rows = c.chunks;",
     "last.rows = c.chunks > 1 ? c.chunks - 1 : 1;"),
]
LSTM_FAULTS = [
    ("states of the first step",
     "tr_plain(c->state + previous * h, h),",
     "tr_plain(c->state, h),"),
    ("rows that have ended go on",
     ".back_state = c->back_state, .rows = (uint32_t)count,\n\t\t.going_on = (uint32_t)going_on,",
     ".back_state = c->back_state, .rows = (uint32_t)count,\n"
     "\t\t.going_on = (uint32_t)(going_on < count ? count : going_on),"),
    ("the states before are others'",
     "tr_plain(c->before + later * h, h)",
     "tr_plain(c->before, h)"),
    ("the bias of outputs is left out",
     "\treturn shift(c, c->outputs, *count, v, TR_LSTM_OUTPUT_BIAS);",
     "\treturn RUBATO_OK;"),
]


def one_text(folder, name):
    """The model's source behind text.c, whose functions are the copy's alone."""
    text = (folder / "text.c").read_text()
    names = sorted(set(re.findall(r"^[a-z].*?\b(tr_cuda_text_\w+)\(", text, re.M)))
    others = "".join(f"#define {name} {name}_FAULT\n" for name in names)
    return others + text + (folder / name).read_text()


def main():
    folder, table, *copies = sys.argv[1:]
    folder = pathlib.Path(folder)
    faults = [("tr_compute_cuda", (folder / "compute_cuda.c").read_text(), *fault)
              for fault in FAULTS]
    faults += [("tr_compute_gpt_cuda", one_text(folder, "gpt.c"), *fault) for fault in GPT_FAULTS]
    faults += [("tr_compute_lstm_cuda", one_text(folder, "lstm.c"), *fault)
               for fault in LSTM_FAULTS]
    assert len(copies) == len(faults), f"{len(faults)} faults, {len(copies)} copies"
    lines = []
    for number, (ops, text, what, *changes) in enumerate(faults):
        for good, bad in zip(changes[::2], changes[1::2]):
            assert text.count(good) == 1, f"{what}: {good!r} is there {text.count(good)} times"
            text = text.replace(good, bad)
        text = text.replace("_FAULT\n", f"_{number}\n")
        pathlib.Path(copies[number]).write_text(text.replace(ops, f"tr_compute_fault_{number}"))
        lines.append(f'\tX({number}, "{what}", {int("lstm" in ops) or 2 * int("gpt" in ops)}) \\')
    pathlib.Path(table).write_text("#define FAULTS(X) \\\n" + "\n".join(lines)[:-2] + "\n")


if __name__ == "__main__":
    main()
