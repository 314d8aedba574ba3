/*
 * message.h -- point to point. Messages of one (peer, tag) are numbered (flow.h), so they keep
 * their order on transports that reorder.
 *
 * A receive that ends unmet (cancel, timeout) counts as never posted: its number goes to the next
 * receive, and so on along the flow; the last one's is used again. So does a send that is taken
 * back, if none followed it; else the receiver is sent a void message in its stead, and the receive
 * that meets that one takes the next number.
 *
 * A persistent receive whose message is not here when it is started is put off: it is posted when
 * somebody polls. Who waits for it before that takes the message where it lies.
 */
#ifndef RB_RUNTIME_MESSAGE_H
#define RB_RUNTIME_MESSAGE_H

#include "runtime/op.h"

void rb_messages_open(struct rubato_comm *comm); /* With its engine. */
void rb_message_start(struct rubato_op *op);
/* Sends or receives it without an operation, where that takes no longer than a moment; false:
 * nothing has happened. Sets the tag; peer, signature and buffer have been judged. */
bool rb_message_now(struct rubato_comm *comm, struct rb_message *message, uint32_t user_tag,
		    bool sending);
void rb_message_cancel(struct rubato_op *op, const char *text);
/* Cancels a receive that no message has met, as if it had never been started; else false. */
bool rb_message_recall(struct rubato_op *op, const char *text);
/* Whether a message that is under way is read from there, or comes there. */
bool rb_messages_work_in(const struct rubato_comm *comm, const struct rb_memory *memory);

#endif
