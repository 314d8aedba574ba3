/*
 * list.h -- doubly linked lists of anything that has `next` and `previous`. Macros, since elements
 * differ; their arguments are lvalues without side effects. A list has a first element, a queue a
 * last one, too; NULL where it is empty. What was removed keeps its own links.
 */
#ifndef RB_BASE_LIST_H
#define RB_BASE_LIST_H

#include <stddef.h>

/* In front. */
#define RB_LIST_PUSH(first, element)                                                               \
	do {                                                                                       \
		(element)->previous = NULL;                                                        \
		(element)->next = (first);                                                         \
		if ((first) != NULL)                                                               \
			(first)->previous = (element);                                             \
		(first) = (element);                                                               \
	} while (0)

#define RB_LIST_REMOVE(first, element)                                                             \
	do {                                                                                       \
		if ((element)->previous != NULL)                                                   \
			(element)->previous->next = (element)->next;                               \
		else                                                                               \
			(first) = (element)->next;                                                 \
		if ((element)->next != NULL)                                                       \
			(element)->next->previous = (element)->previous;                           \
	} while (0)

/* At the end. */
#define RB_QUEUE_ADD(first, last, element)                                                         \
	do {                                                                                       \
		(element)->next = NULL;                                                            \
		(element)->previous = (last);                                                      \
		if ((last) != NULL)                                                                \
			(last)->next = (element);                                                  \
		else                                                                               \
			(first) = (element);                                                       \
		(last) = (element);                                                                \
	} while (0)

/* In front. */
#define RB_QUEUE_PUSH(first, last, element)                                                        \
	do {                                                                                       \
		if ((first) == NULL)                                                               \
			(last) = (element);                                                        \
		RB_LIST_PUSH(first, element);                                                      \
	} while (0)

#define RB_QUEUE_REMOVE(first, last, element)                                                      \
	do {                                                                                       \
		RB_LIST_REMOVE(first, element);                                                    \
		if ((element)->next == NULL)                                                       \
			(last) = (element)->previous;                                              \
	} while (0)

#endif
