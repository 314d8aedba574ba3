/*
 * shm_attach.c -- long messages in one copy, made by both ends at once: cross-memory attach.
 *
 * What a rank announces has a joint: a word in the receiver's segment, and the address of the
 * source. When the receive is there, the receiver reads slices of the sender's memory from the
 * first one on; it clears the sender with the address of the target, which writes slices there from
 * the last one down, until they meet. Whoever finishes the last slice tells the other. If one of
 * them is away, the other does it all.
 *
 * Each claims a slice before it touches it, so the word says at any time what is under way. Who
 * takes back a request closes the word, and waits for the slice that the other may be at: while its
 * process runs, but no longer than STOP_NS. Nothing stops a write that was claimed before, so a
 * receiver that waits in vain says that its buffer may still be written.
 *
 * The kernel must let each attach the other: tried out when they meet. Where a rank may not, it
 * leaves all slices to its peer, and if the receiver may not, the message streams through the bulk
 * buffers as ever. So it does when the kernel cannot reach a buffer (a device's memory, for one).
 * Which of the two ways is faster depends on the processor and on the length: on one of ours, where
 * the kernel copies at a fifth of the speed of memcpy, this one loses; on others it wins. So each
 * receiver measures what a byte takes, in one copy by the kernel or in two of memcpy, and takes the
 * better way.
 *
 * Between threads of one process the receiver reads all of it, by the kernel, too: an address that
 * is nowhere is an error then, and nobody writes to one that a ring gives.
 */
#include "transport/shm/shm.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"

#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER 0x59616d61
#define PR_SET_PTRACER_ANY ((unsigned long)-1)
#endif

/* Measured, docs/performance.md, "Plain buffers": what a call of the kernel is worth. */
#define SLICE_BYTES_MIN 65536u
#define SLICE_BYTES_MAX 131072u
#define SLICES 2u
#define SLICES_MAX 32000u /* What the word can count. */
#define PROBE_BYTES 65536u
#define PROBES 8u /* The least counts: who measures may lose the core meanwhile. */
#define KERNEL_COPIES_HOPELESS 8
#define STOP_NS 1000000000u    /* Guess: a slice takes 10 us, unless its rank is not running. */
#define TRIAL_BYTES (4u << 20) /* Guess: of so many bytes, and messages at least. */
#define TRIAL_MESSAGES 4u
#define TRIAL_FIRST                                                                                \
	8u            /* Guess: so much longer is the first, so that short jobs know but one way. */
#define WAY_AGAIN 64u /* Guess: as many trials go the better way, before the next two. */

/* A joint's word: slices claimed from the first on, from the last down, done; closed; and which
 * message it is for, so that who is late finds another's. */
#define FRONT UINT64_C(1)
#define BACK (UINT64_C(1) << 16)
#define DONE (UINT64_C(1) << 32)
#define CLOSED (UINT64_C(1) << 47)
#define TURN (UINT64_C(1) << 48)

static uint32_t front_of(uint64_t word)
{
	return (uint32_t)(word & 0xffff);
}

static uint32_t back_of(uint64_t word)
{
	return (uint32_t)(word >> 16 & 0xffff);
}

static uint32_t done_of(uint64_t word)
{
	return (uint32_t)(word >> 32 & 0x7fff);
}

static uint32_t under_way(uint64_t word)
{
	return front_of(word) + back_of(word) - done_of(word);
}

/* What a message's slices are both ends know from its length alone. */
static uint64_t slice_bytes(uint64_t size_bytes)
{
	uint64_t slice = size_bytes / SLICES, least = size_bytes / SLICES_MAX + 1;

	slice = slice < SLICE_BYTES_MIN ? SLICE_BYTES_MIN : slice;
	slice = slice > SLICE_BYTES_MAX ? SLICE_BYTES_MAX : slice;
	slice = slice < least ? least : slice;
	return (slice + RB_SHM_PAGE - 1) / RB_SHM_PAGE * RB_SHM_PAGE;
}

static uint32_t slice_count(uint64_t size_bytes)
{
	uint64_t slice = slice_bytes(size_bytes);

	return (uint32_t)((size_bytes + slice - 1) / slice);
}

static uint64_t slice_length(uint64_t size_bytes, uint32_t slice)
{
	uint64_t each = slice_bytes(size_bytes), left = size_bytes - slice * each;

	return left < each ? left : each;
}

/* ---- The word ---- */

static bool is_turn(uint64_t word, const struct rb_request *request)
{
	return word / TURN == (request->backend[RB_SHM_JOINT] >> 8 & 0xffff);
}

static uint32_t joint_index(const struct rb_request *request)
{
	return (uint32_t)(request->backend[RB_SHM_JOINT] & 0xff) - 1;
}

static _Atomic uint64_t *word_of(struct rb_shm_peer *peer, const struct rb_request *request)
{
	struct rb_shm_ring *ring =
		request->kind == RB_REQUEST_RECV ? peer->in.ring : peer->out.ring;

	return &ring->joints[joint_index(request)].word;
}

/* False: nothing is left to claim. */
static bool claim(_Atomic uint64_t *word, const struct rb_request *request, uint64_t end,
		  uint32_t *slice)
{
	uint32_t count = slice_count(request->size_bytes);
	uint64_t old = atomic_load_explicit(word, memory_order_acquire);

	do {
		if (!is_turn(old, request) || (old & CLOSED) != 0 ||
		    front_of(old) + back_of(old) >= count)
			return false;
		*slice = end == FRONT ? front_of(old) : count - 1 - back_of(old);
	} while (!atomic_compare_exchange_weak_explicit(word, &old, old + end, memory_order_acq_rel,
							memory_order_acquire));
	return true;
}

/* True: that was the last one. */
static bool slice_done(_Atomic uint64_t *word, const struct rb_request *request)
{
	uint64_t old = atomic_load_explicit(word, memory_order_acquire);

	do {
		if (!is_turn(old, request)) /* It waited for us as long as it could. */
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
		word, &old, old + DONE, memory_order_acq_rel, memory_order_acquire));
	return done_of(old) + 1 == slice_count(request->size_bytes);
}

/* Claimed, but not done: the joint is closed, and nobody will do it. */
static void slice_undo(_Atomic uint64_t *word, const struct rb_request *request, uint64_t end)
{
	uint64_t old = atomic_load_explicit(word, memory_order_acquire);

	while (is_turn(old, request) &&
	       !atomic_compare_exchange_weak_explicit(word, &old, old - end, memory_order_acq_rel,
						      memory_order_acquire))
		continue;
}

/* Nobody claims any more. Returns the word. */
static uint64_t joint_close(_Atomic uint64_t *word, const struct rb_request *request)
{
	uint64_t old = atomic_load_explicit(word, memory_order_acquire);

	while (is_turn(old, request) && (old & CLOSED) == 0)
		if (atomic_compare_exchange_weak_explicit(
			    word, &old, old | CLOSED, memory_order_acq_rel, memory_order_acquire))
			return old | CLOSED;
	return old;
}

/* ---- Copying ---- */

/* Moves a slice between our memory and the peer's; 0, or what the kernel has against it. */
static int slice_move(const struct rb_shm_peer *peer, uint8_t *ours, uint64_t theirs, size_t bytes,
		      bool write)
{
	while (bytes > 0) {
		struct iovec here = { ours, bytes }, there = { (void *)(uintptr_t)theirs, bytes };
		ssize_t moved =
			write ? process_vm_writev(peer->attach_process, &here, 1, &there, 1, 0)
			      : process_vm_readv(peer->attach_process, &here, 1, &there, 1, 0);

		if (moved <= 0)
			return moved < 0 ? errno : EFAULT;
		ours += moved;
		theirs += (uint64_t)moved;
		bytes -= (size_t)moved;
	}
	return 0;
}

static int request_slice(struct rb_shm_peer *peer, const struct rb_request *request, uint32_t slice)
{
	uint64_t at = slice * slice_bytes(request->size_bytes);

	return slice_move(
		peer, (uint8_t *)request->buffer + at, request->backend[RB_SHM_THEIR_ADDRESS] + at,
		(size_t)slice_length(request->size_bytes, slice), request->kind != RB_REQUEST_RECV);
}

/* ---- Requests that are copied ---- */

static struct rb_shm_joined *joined_of(struct rb_shm_peer *peer, const struct rb_request *request)
{
	return request->kind == RB_REQUEST_RECV ? &peer->receives : &peer->attached_sends;
}

static void activate(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		     struct rb_request *request)
{
	joined_of(peer, request)->active |= 1u << joint_index(request);
	peer->outgoing++;
	ep->base.leaving++;
}

static void deactivate(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		       const struct rb_request *request)
{
	struct rb_shm_joined *joined = joined_of(peer, request);
	uint32_t bit = 1u << joint_index(request);

	if ((joined->active & bit) == 0)
		return;
	joined->active &= ~bit;
	peer->outgoing--;
	ep->base.leaving--;
}

static void joint_give(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		       struct rb_request *request)
{
	deactivate(ep, peer, request);
	joined_of(peer, request)->requests[joint_index(request)] = NULL;
	request->backend[RB_SHM_JOINT] = 0;
}

/* ---- Which way ---- */

static struct rb_shm_ways *ways_of(struct rb_shm_endpoint *ep, uint64_t size_bytes)
{
	uint32_t class = 0;

	while (class < RB_SHM_CLASSES - 1 && size_bytes >> (class + 1) >= RB_SHM_ATTACH_BYTES_MIN)
		class ++;
	return &ep->ways[class];
}

/*
 * Of our own memory, which is in the cache: one copy by the kernel against one by memcpy. A message
 * is copied by memcpy twice, and each time its bytes come from another core, which takes about as
 * long again; the kernel saves one of the two. Measured: 2.4 times memcpy where it wins by a third,
 * 5.2 times where it loses. At 9.4 times a trial takes what a few hundred messages gain, if any do.
 */
enum rb_shm_kernel rb_shm_kernel_judge(uint64_t kernel_ns, uint64_t plain_ns)
{
	if (kernel_ns < RB_SHM_KERNEL_COPIES * plain_ns)
		return RB_SHM_KERNEL_FAST;
	return kernel_ns < KERNEL_COPIES_HOPELESS * plain_ns ? RB_SHM_KERNEL_SLOW
							     : RB_SHM_KERNEL_HOPELESS;
}

static enum rb_shm_kernel kernel_find(struct rb_shm_endpoint *ep)
{
	uint8_t *from = malloc(2 * PROBE_BYTES), *to = from + PROBE_BYTES;
	struct rb_shm_peer self = { .attach_process = getpid() };
	uint64_t kernel_ns = UINT64_MAX, plain_ns = UINT64_MAX;
	int error = 0;

	if (from == NULL)
		return RB_SHM_KERNEL_SLOW;
	memset(from, 1, 2 * PROBE_BYTES);
	for (uint32_t i = 0; i < PROBES && error == 0; i++) {
		uint64_t begun_ns = rb_clock_ns(), middle_ns, end_ns;

		error = slice_move(&self, to, (uintptr_t)from, PROBE_BYTES, false);
		middle_ns = rb_clock_ns();
		memcpy(from, to, PROBE_BYTES);
		end_ns = rb_clock_ns();
		kernel_ns = middle_ns - begun_ns < kernel_ns ? middle_ns - begun_ns : kernel_ns;
		plain_ns = end_ns - middle_ns < plain_ns ? end_ns - middle_ns : plain_ns;
	}
	ep->kernel_copies = (double)kernel_ns / (double)(plain_ns > 0 ? plain_ns : 1);
	RB_LOG(RB_LOG_INFO, "shm: the kernel copies %u bytes in %llu ns, memcpy in %llu",
	       PROBE_BYTES, (unsigned long long)kernel_ns, (unsigned long long)plain_ns);
	free(from);
	return error != 0 ? RB_SHM_KERNEL_SLOW : rb_shm_kernel_judge(kernel_ns, plain_ns);
}

bool rb_shm_kernel_is_fast(struct rb_shm_endpoint *ep)
{
	if (ep->kernel == RB_SHM_KERNEL_UNKNOWN)
		ep->kernel = ep->attach != RB_ATTACH_NEVER ? kernel_find(ep) : RB_SHM_KERNEL_SLOW;
	return ep->kernel == RB_SHM_KERNEL_FAST;
}

bool rb_shm_node_speed(struct rb_endpoint *base, struct rb_node_speed *out)
{
	struct rb_shm_endpoint *ep = (struct rb_shm_endpoint *)base;

	for (uint32_t r = 0; r < base->rank_count; r++)
		if (r != base->rank && ep->peers[r].state != RB_SHM_UNUSED &&
		    ep->peers[r].attach == RB_SHM_ATTACH_NO)
			return false;
	if (!rb_shm_kernel_is_fast(ep))
		return false;
	out->attach_bytes = RB_SHM_ATTACH_BYTES_MIN;
	out->attach_copies = ep->kernel_copies;
	return true;
}

static enum rb_shm_way usual_way(struct rb_shm_endpoint *ep)
{
	return rb_shm_kernel_is_fast(ep) ? RB_SHM_ATTACHED : RB_SHM_STREAMED;
}

static enum rb_shm_way other_way(enum rb_shm_way way)
{
	return way == RB_SHM_ATTACHED ? RB_SHM_STREAMED : RB_SHM_ATTACHED;
}

/* What the kernel's copies take stands, unless much speaks against it: trials are short. */
static enum rb_shm_way better_way(struct rb_shm_endpoint *ep, const struct rb_shm_ways *ways)
{
	enum rb_shm_way usual = usual_way(ep), other = other_way(usual);

	return ways->each[other] < ways->each[usual] / 4 * 3 ? other : usual;
}

/*
 * Each way in turn for some messages, the usual one first, then the better one for many. Not single
 * messages: one that goes another way than those around it finds other things in the caches, and
 * takes twice as long. So the first half of a trial is not counted either, nor is what goes on
 * after it.
 */
static enum rb_shm_way way_choose(struct rb_shm_endpoint *ep, uint64_t size_bytes, bool *counts)
{
	struct rb_shm_ways *ways = ways_of(ep, size_bytes);
	uint32_t trial = size_bytes < TRIAL_BYTES / TRIAL_MESSAGES
				 ? (uint32_t)(TRIAL_BYTES / size_bytes)
				 : TRIAL_MESSAGES;

	*counts = false;
	if (usual_way(ep) == RB_SHM_STREAMED && ep->kernel == RB_SHM_KERNEL_HOPELESS)
		return RB_SHM_STREAMED;
	if (ways->left == 0 && ways->trials > 0 && ways->each[ways->way] == 0) {
		ways->left = trial; /* None of them is over. */
	} else if (ways->left == 0 && ways->trials < 2) {
		ways->way = ways->trials == 0 ? usual_way(ep) : other_way(usual_way(ep));
		ways->left = ways->trials == 0 && ways->each[ways->way] == 0 ? TRIAL_FIRST * trial
									     : trial;
		ways->each[ways->way] = 0;
		ways->trials++;
	} else if (ways->left == 0) {
		ways->way = better_way(ep, ways);
		ways->trials = 0;
		ways->left = WAY_AGAIN * trial;
	}
	*counts = ways->trials > 0 && ways->left <= (trial + 1) / 2;
	ways->left--;
	return ways->way;
}

/* RB_SHM_SHOWN: the way + 1, what was copied of the message, in pages, and for how long. */
#define SHOWN_WAY_SHIFT 62
#define SHOWN_PAGE_SHIFT 40
#define SHOWN_PAGES (UINT64_C(0x3fffff) << SHOWN_PAGE_SHIFT)
#define SHOWN_NS ((UINT64_C(1) << SHOWN_PAGE_SHIFT) - 1)

void rb_shm_way_add(struct rb_request *request, uint64_t bytes, uint64_t took_ns)
{
	uint64_t *shown = &request->backend[RB_SHM_SHOWN];
	uint64_t pages = bytes / RB_SHM_PAGE << SHOWN_PAGE_SHIFT;

	/* A peer may say anything; and what is shown is enough. */
	if (took_ns > SHOWN_NS - (*shown & SHOWN_NS) ||
	    pages > SHOWN_PAGES - (*shown & SHOWN_PAGES))
		return;
	*shown += pages + took_ns;
}

/*
 * The least of a trial: who copies may lose the core meanwhile. What bytes take is asked, not what
 * messages do: where both ranks send, a message that takes more of the cores than the other way
 * would can be over sooner, at the cost of the one that goes back.
 */
void rb_shm_way_note(struct rb_shm_endpoint *ep, const struct rb_request *request)
{
	uint64_t shown = request->backend[RB_SHM_SHOWN], each;
	uint64_t pages = (shown & SHOWN_PAGES) >> SHOWN_PAGE_SHIFT;
	uint64_t way = (shown >> SHOWN_WAY_SHIFT) - 1;
	struct rb_shm_ways *ways = ways_of(ep, request->size_bytes);

	if (pages == 0)
		return;
	each = (shown & SHOWN_NS) * 1000 / (pages * RB_SHM_PAGE) + 1;
	if (ways->each[way] == 0 || each < ways->each[way])
		ways->each[way] = each;
}

/* ---- Joints ---- */

/* Whether a joint may be named so, and its place is free. */
static bool is_free(const struct rb_shm_joined *joined, uint64_t joint)
{
	uint64_t index = (joint & 0xff) - 1;

	return index < RB_SHM_JOINTS && joint >> 24 == 0 && joined->requests[index] == NULL;
}

uint64_t rb_shm_offer(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		      struct rb_request *request, uint64_t size_bytes)
{
	struct rb_shm_joint *joint = peer->out.ring->joints;
	uint64_t turn, i = 0;

	request->backend[RB_SHM_JOINT] = 0;
	while (i < RB_SHM_JOINTS && peer->attached_sends.requests[i] != NULL)
		i++;
	if (ep->attach == RB_ATTACH_NEVER || size_bytes < RB_SHM_ATTACH_BYTES_MIN ||
	    i == RB_SHM_JOINTS)
		return 0;
	joint += i;
	turn = (atomic_load_explicit(&joint->word, memory_order_relaxed) / TURN + 1) & 0xffff;
	atomic_store_explicit(&joint->address, (uintptr_t)request->buffer, memory_order_relaxed);
	atomic_store_explicit(&joint->word, turn * TURN, memory_order_release);
	peer->attached_sends.requests[i] = request;
	request->backend[RB_SHM_JOINT] = (i + 1) | turn << 8;
	return request->backend[RB_SHM_JOINT];
}

uint64_t rb_shm_join(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		     struct rb_request *request, uint64_t joint)
{
	enum rb_shm_way way;
	bool counts;

	request->backend[RB_SHM_JOINT] = request->backend[RB_SHM_SHOWN] = 0;
	if (peer->attach == RB_SHM_ATTACH_NO || !is_free(&peer->receives, joint) ||
	    request->size_bytes < RB_SHM_ATTACH_BYTES_MIN)
		return 0;
	way = way_choose(ep, request->size_bytes, &counts);
	if (counts)
		request->backend[RB_SHM_SHOWN] = (1 + (uint64_t)way) << SHOWN_WAY_SHIFT;
	if (way == RB_SHM_STREAMED)
		return 0;
	request->backend[RB_SHM_JOINT] = joint;
	request->backend[RB_SHM_THEIR_ADDRESS] = atomic_load_explicit(
		&peer->in.ring->joints[joint_index(request)].address, memory_order_relaxed);
	peer->receives.requests[joint_index(request)] = request;
	activate(ep, peer, request);
	return (uintptr_t)request->buffer;
}

bool rb_shm_joined(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, struct rb_request *request,
		   uint64_t address)
{
	if (request->backend[RB_SHM_JOINT] == 0 || request->backend[RB_SHM_THEIR_ADDRESS] != 0)
		return false;
	request->backend[RB_SHM_THEIR_ADDRESS] = address;
	if (peer->attach == RB_SHM_ATTACH_PROCESS)
		activate(ep, peer, request);
	return true;
}

void rb_shm_part(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, struct rb_request *request)
{
	if (request->backend[RB_SHM_JOINT] != 0)
		joint_give(ep, peer, request);
}

bool rb_shm_part_early(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		       struct rb_request *request)
{
	_Atomic uint64_t *at;
	uint64_t word, until_ns = 0;

	if (request->backend[RB_SHM_JOINT] == 0)
		return false;
	at = word_of(peer, request);
	word = joint_close(at, request);
	while (is_turn(word, request) && under_way(word) != 0 &&
	       !rb_process_ended(peer->process_fd)) {
		if (until_ns == 0)
			until_ns = rb_deadline(rb_clock_ns(), STOP_NS);
		else if (rb_clock_ns() >= until_ns)
			break;
		(void)sched_yield();
		word = atomic_load_explicit(at, memory_order_acquire);
	}
	bool all = is_turn(word, request) && done_of(word) == slice_count(request->size_bytes);
	bool left = is_turn(word, request) && under_way(word) != 0;

	if (left && request->kind == RB_REQUEST_RECV && !rb_process_ended(peer->process_fd))
		RB_LOG(RB_LOG_WARN,
		       "shm: rank %u is stopped in the middle of a message of %zu bytes that is "
		       "not awaited any more: it may write into its buffer when it goes on",
		       peer->rank, request->size_bytes);
	joint_give(ep, peer, request);
	return all;
}

void rb_shm_part_all(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer)
{
	for (uint32_t i = 0; i < RB_SHM_JOINTS; i++) {
		if (peer->receives.requests[i] != NULL)
			(void)rb_shm_part_early(ep, peer, peer->receives.requests[i]);
		if (peer->attached_sends.requests[i] != NULL)
			(void)rb_shm_part_early(ep, peer, peer->attached_sends.requests[i]);
	}
}

/* ---- One slice ---- */

static void refused(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, int error)
{
	if (error == ESRCH) /* It has ended. */
		ep->notice = true;
	else if (error != EFAULT)
		rb_shm_attach_not(peer, RB_ERRNO_TEXT(error));
}

void rb_shm_stream_instead(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
			   struct rb_request *request)
{
	(void)rb_shm_part_early(ep, peer, request);
	request->backend[RB_SHM_OFFSET] = request->backend[RB_SHM_SHOWN] = 0;
	rb_shm_say(ep, peer, RB_SHM_CLEAR, request->tag, request->backend[RB_SHM_THEIR_ID],
		   request->backend[RB_SHM_ID], 0);
}

static void receive_slice(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
			  struct rb_request *request)
{
	_Atomic uint64_t *word = word_of(peer, request);
	uint64_t begun_ns = 0;
	uint32_t slice;
	int error;

	if (!claim(word, request, FRONT, &slice)) {
		deactivate(ep, peer, request); /* The sender ends it. */
		return;
	}
	if (request->backend[RB_SHM_SHOWN] != 0)
		begun_ns = rb_clock_ns();
	error = request_slice(peer, request, slice);
	if (error == 0 && request->backend[RB_SHM_SHOWN] != 0)
		rb_shm_way_add(request, slice_length(request->size_bytes, slice),
			       rb_clock_ns() - begun_ns);
	if (error != 0) {
		(void)joint_close(word, request);
		slice_undo(word, request, FRONT);
		refused(ep, peer, error);
		rb_shm_stream_instead(ep, peer, request);
		return;
	}
	if (!slice_done(word, request))
		return;
	joint_give(ep, peer, request);
	rb_shm_received(ep, peer, request);
}

static void send_slice(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer,
		       struct rb_request *request)
{
	_Atomic uint64_t *word = word_of(peer, request);
	uint64_t theirs = request->backend[RB_SHM_THEIR_ID];
	uint32_t slice;
	int error;

	if (!claim(word, request, BACK, &slice)) {
		deactivate(ep, peer, request);
		return;
	}
	error = request_slice(peer, request, slice);
	if (error != 0) {
		refused(ep, peer, error);
		(void)joint_close(word, request);
		slice_undo(word, request, BACK);
		deactivate(ep, peer, request);
		rb_shm_say(ep, peer, RB_SHM_WRITTEN, request->tag, theirs, 0, 0);
		return;
	}
	if (!slice_done(word, request))
		return;
	joint_give(ep, peer, request);
	rb_shm_say(ep, peer, RB_SHM_WRITTEN, request->tag, theirs, 1, 0);
	rb_shm_sent(ep, peer, request);
}

static struct rb_request *first_of(const struct rb_shm_joined *joined)
{
	return joined->active != 0 ? joined->requests[__builtin_ctz(joined->active)] : NULL;
}

void rb_shm_attach_flush(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer)
{
	struct rb_request *receive = first_of(&peer->receives);
	struct rb_request *send;

	if (receive != NULL)
		receive_slice(ep, peer, receive);
	send = first_of(&peer->attached_sends);
	if (send != NULL)
		send_slice(ep, peer, send);
}

/* ---- Who may ---- */

void rb_shm_attach_open(struct rb_shm_endpoint *ep, enum rb_attach attach)
{
	ep->attach = attach;
	ep->probe = rb_rng_next(&ep->rng);
	/* Yama lets only a parent attach, or whom the process names: here, all of the user. */
	if (attach == RB_ATTACH_OFFER)
		(void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

void rb_shm_attach_not(struct rb_shm_peer *peer, const char *why)
{
	peer->attach = RB_SHM_ATTACH_NO;
	RB_LOG(RB_LOG_INFO,
	       "shm: no attaching the memory of rank %u, long messages are copied "
	       "twice: %s",
	       peer->rank, why);
}

void rb_shm_attach_try(struct rb_shm_endpoint *ep, struct rb_shm_peer *peer, int32_t process,
		       uint64_t address, uint64_t probe)
{
	uint64_t seen = 0;

	peer->attach_process = process;
	if (ep->attach == RB_ATTACH_NEVER || address == 0) {
		rb_shm_attach_not(peer, "RUBATO_ATTACH=never");
		return;
	}
	if (process <= 0) {
		rb_shm_attach_not(peer, "its process has no number in this namespace");
		return;
	}
	if (process == getpid()) {
		peer->attach = RB_SHM_ATTACH_THREAD;
		return;
	}
	peer->attach = RB_SHM_ATTACH_PROCESS;
	int error = slice_move(peer, (uint8_t *)&seen, address, sizeof(seen), false);

	if (error != 0)
		rb_shm_attach_not(peer, RB_ERRNO_TEXT(error));
	else if (seen != probe)
		rb_shm_attach_not(peer, "its process is another one here");
}
