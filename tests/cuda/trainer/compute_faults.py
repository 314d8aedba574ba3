#!/usr/bin/env python3
"""compute_faults.py -- copies of the device's backend, each with one fault.

usage: compute_faults.py SOURCE TABLE COPY...

Writes a copy for each fault, in which the backend's table is tr_compute_fault_N, and TABLE, which
lists them: FAULTS(X) has an X(N, "what is wrong") of each.
"""

import pathlib
import sys

FAULTS = [
    ("an operand is not transposed",
     "BLAS(cublasSgemm, CUBLAS_OP_T, CUBLAS_OP_N, outs,",
     "BLAS(cublasSgemm, CUBLAS_OP_N, CUBLAS_OP_N, outs,"),
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
     "&zero, c->gradient + l->weight_offset, ins);",
     "&zero, c->gradient + l->bias_offset - l->weight_count + 1, ins);"),
]


def main():
    source, table, *copies = sys.argv[1:]
    text = pathlib.Path(source).read_text()
    assert len(copies) == len(FAULTS), f"{len(FAULTS)} faults, {len(copies)} copies"
    lines = []
    for number, (what, good, bad) in enumerate(FAULTS):
        assert text.count(good) == 1, f"{what}: {good!r} is there {text.count(good)} times"
        copy = text.replace(good, bad)
        pathlib.Path(copies[number]).write_text(
            copy.replace("tr_compute_cuda", f"tr_compute_fault_{number}"))
        lines.append(f'\tX({number}, "{what}") \\')
    pathlib.Path(table).write_text("#define FAULTS(X) \\\n" + "\n".join(lines)[:-2] + "\n")


if __name__ == "__main__":
    main()
