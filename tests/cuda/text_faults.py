#!/usr/bin/env python3
"""text_faults.py -- copies of the trainer's kernels for models of text with one fault each.

usage: text_faults.py KERNELS.CU SOURCE HEADER

SOURCE has a kernel rb_fault_N for each fault, HEADER a row for each. A fault is: what it is, the
kernel, the test of test_text.c that runs it, what the interpreter of PTX says, whether it is
noticed on the host, too (None: it would end the program there), and what changes in the source.
"""

import pathlib
import sys

OTHER, BEYOND, RACE, APART = "other bits", "memory beyond", "a race", "not all meet"
EITHER = ""

FAULTS = [
    ("the place is left out", "embed", "EMBED", OTHER, True, [("row % c.length", "0")]),
    ("blocks do the same", "embed", "EMBED", RACE, True,
     [("blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x")]),
    ("a bias is left out", "split", "SPLIT", OTHER, True,
     [("c.bias != 0 ? c.from[i] + c.bias[(uint32_t)i % width] : c.from[i]", "c.from[i]")]),
    ("heads and rows change places", "merge", "MERGE", OTHER, True,
     [("part * c.rows + row) * c.heads + head)", "part * c.heads + head) * c.rows + row)")]),
    ("GELU without its bias", "gelu", "GELU", OTHER, True,
     [("tr_gelu(c.from[i] + c.bias[(uint32_t)i % c.count])", "tr_gelu(c.from[i])")]),
    ("slopes are not multiplied", "gelu_back", "GELU_BACK", OTHER, True,
     [("c.slope[i] *= tr_gelu_slope", "c.slope[i] = tr_gelu_slope")]),
    ("a row too many", "columns", "COLUMNS", BEYOND, True, [("row < end;", "row <= end;")]),
    ("the last rows are left out", "columns", "COLUMNS", OTHER, True,
     [("(c.rows + c.chunks - 1) / c.chunks", "c.rows / c.chunks")]),
    ("a mean is left out", "columns", "NORM_COLUMNS", OTHER, True,
     [("(c.value[at] - c.mean[row]) *", "c.value[at] *")]),
    ("an order is left out", "gather", "GATHER", OTHER, True,
     [("c.order != 0 ? c.order[j] : j", "j")]),
    ("a piece too long", "gather", "GATHER", EITHER, True, [("j < end;", "j <= end;")]),
    ("a variance of a lane", "norm", "NORM", OTHER, True, [("lanes_sum(square)", "square")]),
    ("what is added is not kept", "norm", "SUM_NORM", OTHER, True,
     [("c.sum[at + k] = value;", "")]),
    ("all lanes write", "norm", "NORM", RACE, False,
     [("if (lane() == 0) {\n\t\t\tc.mean", "if (true) {\n\t\t\tc.mean")]),
    ("a lane that does not come", "norm", "NORM", APART, None,
     [("mean = lanes_sum(mean) /", "if (lane() != 31)\n\t\t\tmean = lanes_sum(mean) /")]),
    ("slopes are always added", "norm_back", "NORM_BACK", OTHER, True,
     [("level - even * along), c.add)", "level - even * along), 1u)")]),
    ("a mean is not divided", "norm_back", "NORM_BACK", OTHER, True,
     [("along = lanes_sum(along) / (float)c.count;", "along = lanes_sum(along);")]),
    ("the future is seen", "soften", "SOFTEN", OTHER, True,
     [("row % c.length + 1", "c.length")]),
    ("no zeros behind", "soften", "SOFTEN", OTHER, True,
     [("k < c.length; k += WARP)\n\t\t\tp[k]", "k < seen; k += WARP)\n\t\t\tp[k]")]),
    ("lanes that add too little", "soften_back", "SOFTEN_BACK", OTHER, True,
     [("apart > 0;", "apart > 1;")]),
    ("of equals another one", "loss_tokens", "TOKENS", OTHER, True,
     [("other == value && there < place", "other == value && there > place")]),
    ("the answer is left out", "loss_tokens", "TOKENS", OTHER, True,
     [("(k == label ? c.scale : 0.0f);\n\t}\n}\n\n/* ---- Flat", "0.0f;\n\t}\n}\n\n/* ---- Flat")]),
    ("gates change places", "cell", "CELL", OTHER, True,
     [("gates[h] = f;\n\t\tgates[2 * h] = g;\n\t\tgates[3 * h] = o;\n\t\tc.cell",
       "gates[h] = f;\n\t\tgates[2 * h] = o;\n\t\tgates[3 * h] = g;\n\t\tc.cell")]),
    ("a row that has ended goes on", "cell", "CELL", BEYOND, True,
     [("row < c.going_on)\n\t\t\tc.after", "row <= c.going_on)\n\t\t\tc.after")]),
    ("a cell's slope is not handed on", "cell_back", "CELL_BACK", OTHER, True,
     [("(back ? c.back_cell[n] : 0.0f)", "0.0f")]),
]
WARPS = ("norm", "norm_back", "soften", "soften_back", "loss_tokens")


def main(arguments):
    kernels, source, header = arguments
    text = pathlib.Path(kernels).read_text()
    opening, rest = text.split("namespace trainer_kernels\n{\n", 1)
    body = rest.split("} // namespace trainer_kernels\n", 1)[0]
    out, rows, there = [opening], [], []
    for number, (what, kernel, test, ptx, host, changes) in enumerate(FAULTS):
        faulty = body
        for old, new in changes:
            if old not in faulty:
                sys.exit(f"text_faults.py: {what}: nothing in {kernels} is {old!r}")
            faulty = faulty.replace(old, new)
        copy = (
            f"namespace fault_{number}\n{{\nnamespace\n{{\n{faulty}}}\n"
            "extern \"C\" __global__ void __launch_bounds__(TR_CUDA_BLOCK)\n"
            f"\trb_fault_{number}(const struct tr_cuda_{kernel} __grid_constant__ call)\n"
            f"{{\n\t{kernel}(call);\n}}\n}}\n"
        )
        out.append(f"#if defined(__CUDACC__)\n{copy}#endif\n" if host is None else copy)
        if host is not None:
            there.append(f"X({number}, tr_cuda_{kernel}, {str(kernel in WARPS).lower()})")
        rows.append(f'\t{{ "{what}", {test}, "{ptx}", {0 if host is None else 1 + host} }},\n')
    out.append(f"#define FAULTS(X) {' '.join(there)}\n")
    pathlib.Path(source).write_text("".join(out))
    pathlib.Path(header).write_text(
        "static const struct {\n\tconst char *what;\n\tenum kernel kernel;\n\tconst char *ptx;\n"
        "\tint host; /* 0: not there; 1: not noticed; 2: noticed. */\n} faults[] = {\n"
        + "".join(rows) + "};\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
