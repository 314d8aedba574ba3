"""mutations -- ways to break the code under test, each of which the exploration must catch.

A list for tests/mutate.py: what a fault needs to know is the case of test_interleavings.c that must
fail.
"""

LOCK, WAITING, ENGINE = "base/sync.c", "runtime/engine/waiting.c", "runtime/engine/engine.c"
PARCELS = "transport/shm/shm_parcels.c"
SHM, SEND = "transport/shm/shm.c", "transport/shm/shm_send.c"
RECEIVE, BULKS = "transport/shm/shm_receive.c", "transport/shm_bulks.c"
MACHINE = "collectives/partial/rounds.c"
PARTIAL = "runtime/relaxed/partial.c"

# Counts that only cost points here: what they bound happens all the same.
SMALLER = [
    (LOCK, "#define SPINS 100", "#define SPINS 1"),
    (ENGINE, "#define FIRST_POLLS 64", "#define FIRST_POLLS 2"),
    (ENGINE, "#define POLLS_PER_CLOCK 32", "#define POLLS_PER_CLOCK 1"),
    (PARTIAL, "#define MERGE_LOCKED_BYTES (64u << 10)", "#define MERGE_LOCKED_BYTES 0u"),
]

LOCK_DROP = ("if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)"
             " rb_futex_wake(&lock->word, 1);")
LOCK_SLEEP = ("while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)"
              " (void)rb_futex_wait(&lock->word, 2, UINT64_MAX);")
PUBLISH = ("atomic_store_explicit(&cell->word, rb_shm_cell_word(out->position, kind, size_bytes),"
           " memory_order_release);")
LOOK = "atomic_thread_fence(memory_order_seq_cst);"
CONSUMED = "atomic_store_explicit(&in->credit->consumed, in->position, memory_order_release);"

FAULTS = [
    ("lock: dropped without a wake-up", "lock",
     [(LOCK, LOCK_DROP,
       "(void)atomic_exchange_explicit(&lock->word, 0, memory_order_release);")]),
    ("lock: looks for sleepers, then drops", "lock",
     [(LOCK, LOCK_DROP,
       "uint32_t before = atomic_load(&lock->word); atomic_store(&lock->word, 0);"
       " if (before == 2) rb_futex_wake(&lock->word, 1);")]),
    ("lock: sleeps without having said so", "lock",
     [(LOCK, LOCK_SLEEP,
       "while (!rb_lock_try(lock)) (void)rb_futex_wait(&lock->word, 1, UINT64_MAX);")]),
    ("lock: dropped by a relaxed exchange", "lock",
     [(LOCK, LOCK_DROP,
       "if (atomic_exchange_explicit(&lock->word, 0, memory_order_relaxed) == 2)"
       " rb_futex_wake(&lock->word, 1);")]),
    ("lock: taken by a relaxed exchange", "lock",
     [(LOCK, LOCK_SLEEP,
       "while (atomic_exchange_explicit(&lock->word, 2, memory_order_relaxed) != 0)"
       " (void)rb_futex_wait(&lock->word, 2, UINT64_MAX);")]),
    ("waiting: as it was, a late echo is awaited for ever", "waiting",
     [(WAITING, "if (!echo_await(echo, 2 * i + 1)) break;",
       "uint64_t until = rb_deadline(rb_clock_ns(), 100000000);"
       " while (atomic_load(&echo->word) != 2 * i + 1)"
       " if (!rb_futex_wait(&echo->word, 2 * i, until)) return NULL;"),
      (WAITING, "if (!echo_await(&echo, 2 * i + 2)) break;",
       "uint64_t until = rb_deadline(start, 100000000);"
       " while (atomic_load(&echo.word) != 2 * i + 2)"
       " if (!rb_futex_wait(&echo.word, 2 * i + 1, until)) break;")]),
    ("engine: as it was, two that hand over share one flag", "engine-two",
     [(ENGINE, "engine->hand_over.away++;", "engine->hand_over.away = 1;"),
      (ENGINE, "engine->hand_over.away--;", "engine->hand_over.away = 0;")]),
    ("engine: who was handed the lock does not say so", "engine-two",
     [(ENGINE, "if (engine->hand_over.away > 0)"
               " rb_futex_wake(&engine->hand_over.taken, UINT32_MAX);", ";")]),
    ("engine: the word is read after the lock is dropped", "engine-two",
     [(ENGINE, "rb_lock_drop(&engine->lock);"
               " (void)rb_futex_wait(&engine->waiters_word, seen, deadline_ns);",
       "rb_lock_drop(&engine->lock); (void)seen; (void)rb_futex_wait(&engine->waiters_word,"
       " atomic_load(&engine->waiters_word), deadline_ns);")]),
    ("engine: a waiter leaves without passing the drive on", "engine-two",
     [(ENGINE, "[[if (engine->waiters > 0) rb_engine_wake_waiters(engine);]]"
               " if (!finished)", ";")]),
    ("engine: a waiter completes another's operation and does not tell", "engine-chain",
     [(ENGINE, "while (!over(engine, done)) { if (rb_engine_progress(engine))"
               " { if (idle.since_ns != 0 && !idle.slept) rb_waiting_found(&engine->waiting);"
               " idle = (struct idle) { 0 };"
               " [[if (engine->completed && engine->waiters > 0)"
               " rb_engine_wake_waiters(engine);]]", ";"),
      (ENGINE, "[[if (engine->completed && engine->waiters > 0) rb_engine_wake_waiters(engine);]]"
               " engine->completed = engine->posted", ";")]),
    ("engine: sleeps although something is there", "engine-one",
     [(ENGINE, "if (engine->completed || !endpoints_arm(engine)) return;",
       "(void)endpoints_arm(engine);")]),
    ("engine: parks by a word read after the lock is dropped", "engine-one",
     [(ENGINE, "woken = rb_futex_wait(&engine->background.word, seen, until_ns);",
       "(void)seen; woken = rb_futex_wait(&engine->background.word,"
       " atomic_load(&engine->background.word), until_ns);")]),
    ("engine: a kick without a wake-up", "engine-one",
     [(ENGINE, "rb_futex_wake(&engine->background.word, 1);", ";")]),
    ("engine: reluctant to hand over, and the progress thread does not tick", "engine-reluctant",
     [(ENGINE, "engine->background.ticking = true; [[background_kick(engine);]]", ";")]),
    ("engine: the progress thread ticks, and takes nothing", "engine-reluctant",
     [(ENGINE, "if (left && same) return true;", ";")]),
    ("engine: leaves the sleeping progress thread unarmed", "engine-left",
     [(ENGINE, "!sleeper_needed(engine) && endpoints_arm(engine)", "!sleeper_needed(engine)")]),
    ("engine: leaves to a progress thread that sleeps, though something is there", "engine-left",
     [(ENGINE, "engine->asleep = true; /* It sleeps on the descriptors still. */ else"
               " [[endpoints_wake(engine);]]", ";")]),
    ("engine: as it was, a sleeper that waits is not told of new work", "engine-local",
     [(ENGINE, "[[sleepers_tell(engine);]] seen =", ";"),
      (ENGINE, "[[sleepers_tell(engine);]] if (background_wanted(engine)", ";")]),
    ("engine: as it was, a sleeper that waits is not told that it need not", "engine-cancel",
     [(ENGINE, "if ([[!completed && !engine->posted]] && (engine->polled == 0",
       "!engine->posted")]),
    ("engine: as it was, parks though messages have yet to leave", "engine-leaving",
     [(ENGINE, "engine->in_flight > 0 || rb_engine_leaving(engine)", "engine->in_flight > 0")]),
    ("engine: the progress thread is not told that it drives", "engine-left",
     [(ENGINE, "[[engine->driving = RB_DRIVING_BACKGROUND;]]"
               " engine->background.handed_moves", ";")]),
    ("engine: takes over from a sleeper that stays armed", "engine-left",
     [(ENGINE, "engine->asleep = false; [[endpoints_disarm(engine, engine->endpoint_count);]]",
       ";")]),
    ("engine: stops without waking who sleeps on descriptors", "engine-stop",
     [(ENGINE, "[[endpoints_wake(engine);]] rb_lock_drop(&engine->lock); rb_thread_join", ";")]),
    ("engine: stops without waking who is parked", "engine-stop",
     [(ENGINE, "engine->background.stop = true; [[background_kick(engine);]]", ";")]),
    ("shm: no fence between a cell and the look at sleeping", "shm-sleep", [(SEND, LOOK, ";")]),
    ("shm: a cell is stored relaxed", "shm-cells",
     [(SEND, PUBLISH,
       "atomic_store_explicit(&cell->word, rb_shm_cell_word(out->position, kind, size_bytes),"
       " memory_order_relaxed);")]),
    ("shm: sleeping is only released before the look at the cells", "shm-sleep",
     [(SHM, "atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + 1,"
            " memory_order_seq_cst);",
       "atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + 1,"
       " memory_order_release);")]),
    ("shm: arm looks first, then says that it sleeps", "shm-sleep",
     [(SHM, "[[if (!is_sleeping(ep)) sleeping_next(ep);]] for", ";"),
      (SHM, "if (!quiet) sleeping_next(ep); else ep->base.sleeps++;",
       "if (quiet) { if (!is_sleeping(ep)) sleeping_next(ep); ep->base.sleeps++; }"
       " else if (is_sleeping(ep)) sleeping_next(ep);")]),
    ("shm: arm does not look at the cells", "shm-sleep",
     [(SHM, "!rb_shm_inbox_full(peer) && (peer->outgoing == 0 || rb_shm_blocked(ep, peer))",
       "peer->outgoing == 0 || rb_shm_blocked(ep, peer)")]),
    ("shm: disarm leaves the word odd", "shm-room",
     [(SHM, "[[sleeping_next(ep);]] (void)!read(ep->segment->doorbell", ";")]),
    ("shm: a sender never rings", "shm-sleep",
     [(SEND, "out->rung = sleeping; [[rb_shm_doorbell(peer->segment);]]", ";")]),
    ("shm: a sender rings for the first sleep only", "shm-room",
     [(SEND, "(sleeping & 1) != 0 && sleeping != out->rung",
       "(sleeping & 1) != 0 && out->rung == 0")]),
    ("shm: who waits for room does not say so", "shm-room",
     [(SEND, "publish(peer, cell_at(out, out->position), RB_SHM_WANT, 0, 1);", ";")]),
    ("shm: who is asked for room does not ring", "shm-room",
     [(RECEIVE, "in->wanted = false; [[rb_shm_doorbell(peer->segment);]]", ";")]),
    ("shm: no cell is kept for the wish for room", "shm-room",
     [(SEND, "if (__builtin_expect(out->position - out->consumed + count < RB_SHM_CELLS, 1))"
             " return true;",
       "if (out->position - out->consumed + count <= RB_SHM_CELLS + 40) return true;")]),
    ("shm: the last bulk buffer is not given away", "shm-bulk",
     [(SEND, "b->free[--b->held]", "b->free[b->held > 1 ? --b->held : 0]")]),
    ("shm: room for a message's first piece is room for all", "shm-pieces",
     [(SEND, "!rb_shm_bulks_free(&peer->bulks, pieces)", "!rb_shm_bulks_free(&peer->bulks, 1)"),
      (SEND, "b->free[--b->held]", "b->free[b->held > 0 ? --b->held : 0]")]),
    ("shm: a piece is told before it is there", "shm-pieces",
     [(SEND, "[[slot = bulk_fill(peer, (const uint8_t *)buffer + at, rb_shm_piece(size_bytes -"
             " at)); if (at == 0) { cell->tag = tag; cell->signature = *signature; cell->arg[0] ="
             " size_bytes; cell->arg[1] = rb_shm_long_sent(&peer->longs, size_bytes); }"
             " publish(peer, cell_at(out, out->position), kind, slot,"
             " 1);]]",
       "if (at == 0) { cell->tag = tag; cell->signature = *signature; cell->arg[0] = size_bytes; }"
       " slot = peer->bulks.free[peer->bulks.held - 1] | (peer->bulks.given & 0xffu) << 8;"
       " publish(peer, cell_at(out, out->position), kind, slot, 1);"
       " bulk_fill(peer, (const uint8_t *)buffer + at, rb_shm_piece(size_bytes - at));")]),
    ("shm: a bulk buffer is given back before it is read", "shm-pieces",
     [(RECEIVE, "case RB_SHM_MORE: [[piece_take(ep, peer, word);]] break;",
       "rb_shm_bulk_read(&peer->bulks, word); piece_take(ep, peer, word);"),
      (RECEIVE, "if (in_bulks(kind)) { [[rb_shm_bulk_read(&peer->bulks, word);]] consumed_store",
       "if (kind != RB_SHM_MORE) rb_shm_bulk_read(&peer->bulks, word);")]),
    ("shm: that a bulk buffer is given back is told relaxed", "shm-pieces",
     [(BULKS, "atomic_store_explicit(&b->own_credit->given, b->given, memory_order_release);",
       "atomic_store_explicit(&b->own_credit->given, b->given, memory_order_relaxed);")]),
    ("shm: what is given back is looked at relaxed", "shm-pieces",
     [(BULKS, "rb_shm_bulks_take(b, [[atomic_load_explicit(&b->theirs_credit->given,"
              " memory_order_acquire)]]",
       "atomic_load_explicit(&b->theirs_credit->given, memory_order_relaxed)")]),
    ("shm: a bulk buffer is given back before its number is there", "shm-pieces",
     [(BULKS, "atomic_store_explicit(&b->own_credit->which[b->given++ % RB_SHM_BULKS_GIVEN],"
              " (uint8_t)(number ^ RB_SHM_BULK_OWN), memory_order_relaxed);",
       "atomic_store_explicit(&b->own_credit->given, b->given + 1, memory_order_release);"
       " atomic_store_explicit(&b->own_credit->which[b->given++ % RB_SHM_BULKS_GIVEN],"
       " (uint8_t)(number ^ RB_SHM_BULK_OWN), memory_order_relaxed);")]),
    ("shm: who has read keeps all bulk buffers", "shm-hands",
     [(BULKS, "b->held >= RB_SHM_BULKS_KEPT", "b->held >= 2 * RB_SHM_BULKS")]),
    ("shm: a piece does not tell what was given back", "shm-hands",
     [(BULKS, "untaken > 0", "untaken > 126")]),
    ("shm: the count that a piece tells does not wrap", "shm-hands",
     [(BULKS, "(int8_t)((uint8_t)(word >> 56) - (uint8_t)b->taken)",
       "word >> 56 < (uint8_t)b->taken ? 0 : (int8_t)((word >> 56) - (uint8_t)b->taken)")]),
    ("shm: what was read keeps the name that its sender gave it", "shm-hands",
     [(BULKS, "rb_shm_bulk_number(word) ^ RB_SHM_BULK_OWN", "rb_shm_bulk_number(word)")]),
    ("shm: taken at once, a bulk buffer is given back before it is read", "shm-now",
     [(RECEIVE, "memcpy(target + at, bulk_next(peer, word), rb_shm_piece(size_bytes - at));"
                " rb_shm_bulk_read(&peer->bulks, word);",
       "rb_shm_bulk_read(&peer->bulks, word);"
       " memcpy(target + at, bulk_next(peer, word), rb_shm_piece(size_bytes - at));")]),
    ("shm: taken at once, the last piece is looked at relaxed", "shm-now",
     [(RECEIVE, "atomic_load_explicit(&cell_at(in, last)->word, memory_order_acquire)",
       "atomic_load_explicit(&cell_at(in, last)->word, memory_order_relaxed)")]),
    ("shm: taken at once, the first cell is looked at relaxed", "shm-now",
     [(RECEIVE, "atomic_load_explicit(&cell_at(&peer->in, peer->in.position)->word,"
                " memory_order_acquire)",
       "atomic_load_explicit(&cell_at(&peer->in, peer->in.position)->word,"
       " memory_order_relaxed)")]),
    ("shm: taken at once, the credit is given before the cells are read", "shm-now",
     [(RECEIVE, "payload_read(in, m->buffer, m->size_bytes);"
                " in->position += cells_of(m->size_bytes);",
       "atomic_store_explicit(&in->credit->consumed, in->position + cells_of(m->size_bytes),"
       " memory_order_release); payload_read(in, m->buffer, m->size_bytes);"
       " in->position += cells_of(m->size_bytes);")]),
    ("shm: of a parcel, no fence between its cell and the look at sleeping", "shm-parcels",
     [(PARCELS, LOOK, ";")]),
    ("shm: of a parcel, the cell is stored relaxed", "shm-parcels",
     [(PARCELS, "atomic_store_explicit(&cell->word, word, memory_order_release);",
       "atomic_store_explicit(&cell->word, word, memory_order_relaxed);")]),
    ("shm: of a parcel, nobody rings", "shm-parcels",
     [(PARCELS, "out->rung = sleeping; [[rb_shm_doorbell(peer->segment);]]", ";")]),
    ("shm: of a parcel, the cell is looked at relaxed", "shm-parcels",
     [(PARCELS, "word = atomic_load_explicit(&cell->word, memory_order_acquire);",
       "word = atomic_load_explicit(&cell->word, memory_order_relaxed);")]),
    ("shm: a parcel takes a cell that is not free", "shm-parcels",
     [(PARCELS, "out->position - out->consumed + 1 >= RB_SHM_CELLS", "false")]),
    ("shm: the credit is given before the cell is read", "shm-room",
     [(RECEIVE, "[[if (!take_cell(ep, peer, word, all)) break;]] }",
       "atomic_store_explicit(&in->credit->consumed, in->position + cells_of(word >> 48),"
       " memory_order_release); if (!take_cell(ep, peer, word, all)) break;")]),
    ("shm: the credit is stored relaxed", "shm-room", [(RECEIVE, CONSUMED, "atomic_store_explicit("
       "&in->credit->consumed, in->position, memory_order_relaxed);")]),
    ("shm: the credit is loaded relaxed", "shm-room",
     [(SEND, "atomic_load_explicit(&out->credit->consumed, memory_order_acquire)",
       "atomic_load_explicit(&out->credit->consumed, memory_order_relaxed)")]),
    ("shm: cells after the first are loaded relaxed", "shm-cells",
     [(RECEIVE, "atomic_load_explicit(&cell_at(in, in->position)->word, memory_order_acquire)",
       "atomic_load_explicit(&cell_at(in, in->position)->word, memory_order_relaxed)")]),
    ("shm: the first cell of a chain is there before the others", "shm-cells",
     [(SEND, "[[chain_write(out, (const uint8_t *)buffer + RB_SHM_CELL_PAYLOAD, size_bytes -"
             " RB_SHM_CELL_PAYLOAD);]] cell->tag = tag;",
       "{ cell->tag = tag; cell->signature = *signature;"
       " memcpy(cell->payload, buffer, RB_SHM_CELL_PAYLOAD);"
       " atomic_store(&cell->word, rb_shm_cell_word(out->position, RB_SHM_EAGER, size_bytes));"
       " chain_write(out, (const uint8_t *)buffer + RB_SHM_CELL_PAYLOAD, size_bytes -"
       " RB_SHM_CELL_PAYLOAD); }")]),
    ("partial: tells that it has merged, then merges", "swap",
     [(PARTIAL, "[[if (aside) rb_engine_leave(engine);]]",
       "rb_partial_call(p, RB_ROUNDS_MERGED, NULL, 0, 0); rb_engine_leave(engine);"),
      (PARTIAL, "[[rb_partial_call(p, RB_ROUNDS_MERGED, NULL, 0, 0);]] return err", ";")]),
    ("partial: leases the buffer that was just committed", "swap",
     [(PARTIAL, "p->buffers.lease = rb_partial_free_contribution(p);", ";")]),
    ("partial: leases a buffer that a round is reading", "swap",
     [(PARTIAL, "i == p->buffers.joined", "false")]),
    ("partial: swaps the lease in at a join, half written or not", "swap",
     [(PARTIAL, "p->buffers.joined = p->buffers.pending;",
       "p->buffers.joined = p->buffers.pending; if (p->buffers.leased) { uint32_t in = "
       "p->buffers.lease;"
       " p->buffers.lease = p->buffers.joined; p->buffers.joined = in; }")]),
    ("partial: a round's result goes over the one that is lent", "swap-latest",
     [(MACHINE, "i == m->results.lent || i == m->results.newest", "i == m->results.newest"),
      (MACHINE, "m->results.out != m->results.lent && m->results.out != m->results.newest",
       "true")]),
    ("partial: released before the reader is done", "swap",
     [(MACHINE, "m->results.lent != RB_ROUNDS_NO_SLOT && m->results.kept[m->results.lent] < oldest",
       "false"),
      (MACHINE, "i == m->results.lent || i == m->results.newest", "i == m->results.newest"),
      (MACHINE, "m->results.out != m->results.lent && m->results.out != m->results.newest",
       "true")]),
    ("partial: joins though results would be overwritten unread", "swap",
     [(MACHINE, "if ([[is_behind(m)]]) return RB_ROUNDS_NO_SLOT;", "false"),
      (MACHINE, "if ([[!is_wanted(m, i)]]) return i;", "true")]),
    ("partial: completes without saying that something has changed", "swap",
     [(PARTIAL, "q->changed = true;", ";"),
      (PARTIAL, "p->changed = p->comm->engine.completed = true;", ";")]),
    ("partial: looks for a result, then forgets what has changed", "swap",
     [(PARTIAL, "[[p->changed = false;]] if (is_wanted_elsewhere(p))",
       "(void)rb_engine_hand_over(&p->comm->engine); p->changed = false;")]),
]
