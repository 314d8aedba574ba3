/* rendezvous_wire.c -- see rendezvous_wire.h. */
#include "runtime/startup/rendezvous_wire.h"

#include <sodium.h>
#include <string.h>

static const struct bounds {
	uint32_t payload_min, payload_max;
	bool mac;
} bounds[RB_RV_KIND_COUNT] = {
	[RB_RV_HELLO] = { RB_RV_NONCE_BYTES + 8, RB_RV_NONCE_BYTES + 8, false },
	[RB_RV_CHALLENGE] = { RB_RV_NONCE_BYTES + 8, RB_RV_NONCE_BYTES + 8, false },
	[RB_RV_PROOF] = { 52, 52, true },
	[RB_RV_WELCOME] = { 28, 28, true },
	[RB_RV_START] = { 0, 0, true },
	[RB_RV_GATHER] = { 4, 4 + RB_BLOB_BYTES_MAX, true },
	[RB_RV_TABLE] = { RB_RV_TABLE_HEAD_BYTES, RB_RV_PAYLOAD_MAX, true },
	[RB_RV_REFUSE] = { 4, 4, false },
	[RB_RV_FAIL] = { 8, 8 + RB_RV_FAIL_TEXT_MAX, true },
	[RB_RV_LEAVE] = { 8, 8 + RB_RV_FAIL_TEXT_MAX, true },
};

enum rb_rv_verdict rb_rv_head_read(const uint8_t bytes[RB_RV_HEAD_BYTES], struct rb_rv_head *head)
{
	uint8_t copy[RB_RV_HEAD_BYTES];

	memcpy(copy, bytes, sizeof(copy));
	struct rb_wire w = rb_wire_over(copy, sizeof(copy));
	uint32_t magic = rb_wire_get_u32(&w);

	head->version = rb_wire_get_u8(&w);
	uint8_t kind = rb_wire_get_u8(&w);
	uint16_t zero = rb_wire_get_u16(&w);

	head->payload_bytes = rb_wire_get_u32(&w);
	if (magic != RB_RV_MAGIC)
		return RB_RV_JUNK;
	if (head->version != RB_RV_VERSION)
		return RB_RV_OTHER_VERSION;
	if (zero != 0 || kind == 0 || kind >= RB_RV_KIND_COUNT ||
	    head->payload_bytes < bounds[kind].payload_min ||
	    head->payload_bytes > bounds[kind].payload_max)
		return RB_RV_JUNK;
	head->kind = (enum rb_rv_kind)kind;
	head->total_bytes =
		RB_RV_HEAD_BYTES + head->payload_bytes + (bounds[kind].mac ? RB_RV_MAC_BYTES : 0);
	return RB_RV_GOOD;
}

struct rb_wire rb_rv_message_begin(uint8_t *bytes, size_t room_bytes, enum rb_rv_kind kind)
{
	struct rb_wire w = rb_wire_over(bytes, room_bytes);

	rb_wire_put_u32(&w, RB_RV_MAGIC);
	rb_wire_put_u8(&w, RB_RV_VERSION);
	rb_wire_put_u8(&w, (uint8_t)kind);
	rb_wire_put_u16(&w, 0);
	rb_wire_put_u32(&w, 0);
	return w;
}

size_t rb_rv_message_end(uint8_t *bytes, const struct rb_wire *w)
{
	size_t total = (size_t)(w->at - bytes);
	struct rb_wire size = rb_wire_over(bytes + 8, 4);

	RB_ASSERT(!w->bad);
	rb_wire_put_u32(&size, (uint32_t)(total - RB_RV_HEAD_BYTES));
	return total;
}

void rb_rv_mac(const uint8_t key[RB_RV_KEY_BYTES], const char *label, const void *a, size_t a_bytes,
	       const void *b, size_t b_bytes, uint8_t mac[RB_RV_MAC_BYTES])
{
	crypto_auth_hmacsha256_state state;

	crypto_auth_hmacsha256_init(&state, key, RB_RV_KEY_BYTES);
	crypto_auth_hmacsha256_update(&state, (const uint8_t *)label, strlen(label) + 1);
	crypto_auth_hmacsha256_update(&state, a, a_bytes);
	crypto_auth_hmacsha256_update(&state, b, b_bytes);
	crypto_auth_hmacsha256_final(&state, mac);
	sodium_memzero(&state, sizeof(state));
}

bool rb_rv_mac_same(const uint8_t a[RB_RV_MAC_BYTES], const uint8_t b[RB_RV_MAC_BYTES])
{
	return crypto_verify_32(a, b) == 0;
}

void rb_rv_key_make(const void *secret, size_t secret_bytes, uint8_t key[RB_RV_KEY_BYTES])
{
	static const uint8_t empty[1];
	crypto_auth_hmacsha256_state state;
	static const char label[] = "rubato rendezvous 1";
	uint8_t size =
		(uint8_t)secret_bytes; /* HMAC pads keys with 0: the size tells them apart. */

	crypto_auth_hmacsha256_init(&state, secret_bytes > 0 ? secret : empty, secret_bytes);
	crypto_auth_hmacsha256_update(&state, (const uint8_t *)label, sizeof(label));
	crypto_auth_hmacsha256_update(&state, &size, 1);
	crypto_auth_hmacsha256_final(&state, key);
	sodium_memzero(&state, sizeof(state));
}

void rb_rv_frame_mac(const uint8_t session[RB_RV_KEY_BYTES], bool from_root, uint64_t sequence,
		     const uint8_t *frame, size_t frame_bytes, uint8_t mac[RB_RV_MAC_BYTES])
{
	uint8_t number[8];
	struct rb_wire w = rb_wire_over(number, sizeof(number));

	rb_wire_put_u64(&w, sequence);
	rb_rv_mac(session, from_root ? "rubato frame from root" : "rubato frame from rank", number,
		  sizeof(number), frame, frame_bytes, mac);
}
