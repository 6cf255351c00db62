"""Batches of coalesced operations, and which of their ends are ends of sends and receives.

torch 2.11 on NCCL 2.28.9 writes the entry that ends a batch of `batch_isend_irecv` with `is_p2p` false and the number of the
last collective of the group; its `p2p_seq_id` and `op_id` are those of the last message.
"""

from __future__ import annotations

import numpy as np

from forensics.ingest.flight_recorder.entries import Coded, Codes, Entries, Flags, Numbers, combined


def ends_of_messages(entries: Entries, groups: Codes, is_message: Flags, ends: Flags) -> Flags:
    """Which of the `ends` end a batch of messages: the entry of the group before it is a message of the same batch.

    The first entry of a group, whose batch has left the ring, is what all other ends of this group are. Where
    the group made no collective there is nothing else that it could end.
    """
    order = np.argsort(groups, kind="stable")
    place = np.flatnonzero(ends[order])
    first = (place == 0) | (groups[order[place - 1]] != groups[order[place]])
    before, own = order[place - 1], order[place]
    found = np.zeros(len(groups), dtype=np.bool_)
    found[own] = ~first & is_message[before] & _same_batch(entries, before, own)
    alone = own[first]
    calls = entries.integers("collective_seq_id")
    others = np.zeros(int(groups.max()) + 1, dtype=np.bool_)
    others[groups[own[~first & ~found[own]]]] = True
    messages = np.zeros_like(others)
    messages[groups[own[found[own]]]] = True
    found[alone] = (calls.known[alone] & (calls.data[alone] == 0)) | (messages[groups[alone]] & ~others[groups[alone]])
    return found


def batches(kinds: Coded[str], pg_id: Coded[int | None], is_p2p: Numbers, sequence: Numbers) -> tuple[Codes, Flags]:
    """Which group call each entry is of, and whether it shares it: coalesced operations have one sequence number."""
    if not any("coalesced" in kind for kind in kinds.values):
        return kinds.codes, np.zeros(len(kinds.codes), dtype=np.bool_)
    calls = combined(pg_id, is_p2p.coded(), sequence.coded()).codes
    return calls, np.bincount(calls)[calls] > 1


def states_of_batches(states: Coded[str], kinds: Coded[str], calls: Codes, in_batch: Flags) -> Coded[str]:
    """The members of a batch stay `scheduled` for ever in the recorder: they are where the entry that closes the batch is."""
    closing = in_batch & np.array(["coalesced" in kind for kind in kinds.values], dtype=np.bool_)[kinds.codes]
    if not closing.any():
        return states
    state_of_call = np.full(int(calls.max()) + 1, -1)
    state_of_call[calls[closing]] = states.codes[closing]
    closed = state_of_call[calls]
    return Coded(np.where(in_batch & (closed >= 0), closed, states.codes), states.values)


def _same_batch(entries: Entries, before: Codes, own: Codes) -> Flags:
    number, operation = entries.integers("p2p_seq_id", "seq_id"), entries.integers("op_id")
    known = operation.known[before] & operation.known[own]
    same = number.known[before] & number.known[own] & (number.data[before] == number.data[own])
    result: Flags = same & (~known | (operation.data[before] == operation.data[own]))
    return result
