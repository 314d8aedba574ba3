#!/usr/bin/env python3
"""faults.py -- copies of cuda/kernels.cu with one fault each, and what is to notice them.

usage: faults.py KERNELS.CU SOURCE HEADER

SOURCE has a kernel rb_fault_N for each fault, HEADER a row for each. A fault is: what it is, the
element type whose reduction has it, or the kernel, what the interpreter of PTX says of it, whether
it is noticed on the host, too (None: it is not compiled there; it is of the device's own
instructions, or would end the program), and what changes in the source.
"""

import pathlib
import re
import sys

OTHER, BEYOND, ALIGNED = "other bits", "memory beyond", "not aligned"
RACE, ENDLESS, APART = "a race", "no end", "not all meet"
FTZ = '''{
		Value sum;

		asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
		return sum;
	}'''

FAULTS = [
    ("a vector too many", "f32", BEYOND, True,
     [("i < part.vectors", "i < part.vectors + (part.vectors > 0)")]),
    ("an element too many", "u16", BEYOND, True, [("i < alone", "i <= alone")]),
    ("vectors begin 4 bytes late", "f32", ALIGNED, None, [("-to & 15;", "(-to & 15) + 4;")]),
    ("vectors whose addresses differ", "f32", ALIGNED, None, [("(differ & 15) == 0", "true")]),
    ("elements that are not aligned", "i32", ALIGNED, True,
     [("(differ | to) & (size - 1)", "differ & (size - 1)")]),
    ("no elements behind the vectors", "i8", OTHER, True, [("alone = call.count - within",
                                                            "alone = before")]),
    ("no elements before the vectors", "bf16", RACE, True,
     [("i < before ? i : i + within", "i + within")]),
    ("a NaN that is not canonical", "f64", OTHER, True,
     [("return value != value ? of(canonical_nan) : value;", "return value;")]),
    ("a NaN that a conversion makes", "f16", OTHER, None,
     [("return value != value ? (uint16_t)0x7e00 : stored;", "return stored;")]),
    ("a maximum without NaNs", "f32", OTHER, True,
     [("return a != a || b != b ? of(canonical_nan) : greater;", "return greater;")]),
    ("a maximum of zeros", "f32", OTHER, True,
     [("of(as_bits<Bits>(a) & as_bits<Bits>(b))", "a")]),
    ("a sum that begins with +0", "f32", OTHER, True, [("\t\t\t\t\t  : of(sign);",
                                                       "\t\t\t\t\t  : (Value)0;")]),
    ("ties away from 0", "bf16", OTHER, True, [("0x7fff + (bits >> 16 & 1)", "0x8000")]),
    ("what is rounded is cut", "bf16", OTHER, True,
     [("bits + 0x7fff + (bits >> 16 & 1)", "bits")]),
    ("subnormals that become 0", "f32", OTHER, None, [("{\n\t\treturn a + b;\n\t}", FTZ)]),
    ("a division by an inverse in float32", "f64", OTHER, True,
     [("(Value)1 / (Value)count :", "(Value)(1.0f / (float)count) :")]),
    ("a quotient of unsigned ones", "i32", OTHER, True, [("least != 0 &&", "false &&")]),
    ("maxima of unsigned ones", "i64", OTHER, True,
     [("return a > b ? a : b;", "return (Wide)a > (Wide)b ? a : b;")]),
    ("a sum that does not wrap", "i8", OTHER, True,
     [("(Value)((Wide)a + (Wide)b)", "(int)a + (int)b > greatest ? greatest : (Value)(a + b)")]),
    ("an operand that is not loaded", "i32", OTHER, None,
     [("if (first + k < operands)\n\t\t\t\t\tin[k]",
       "if (first + k + 1 < operands)\n\t\t\t\t\tin[k]")]),
    ("an operand left out", "u64", OTHER, True, [("first += 4", "first += 5")]),
    ("blocks that do the same", "f32", RACE, True,
     [("(uint64_t)blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x")]),
    ("a step of one block", "bf16", RACE, True, [("(uint64_t)gridDim.x * blockDim.x",
                                                   "(uint64_t)blockDim.x")]),
    ("a step of none", "u8", ENDLESS, None, [("i += thread_step()", "i += 0")]),
    ("a target written before all is read", "u32", OTHER, True,
     [("\tif (call.op == RUBATO_AVG)\n\t\tvalue = by(value);\n\tstore_one",
       "\tif (call.op == RUBATO_AVG)\n\t\tvalue = by(value);\n\tstore_one"),
      ("i, aligned);\n\n#pragma unroll 1", "i, aligned);\n\n"
       "\tif (call.from_count > 1)\n\t\tstore_one<T>(call.to, i, value, aligned);\n"
       "#pragma unroll 1")]),
    ("a batch too many", "rb_widen_bf16", BEYOND, True,
     [("i < quads;", "i < quads + (quads > 0);")]),
    ("batches whose addresses differ", "rb_narrow_f16", ALIGNED, None,
     [("aligned && agree && before", "aligned && before")]),
    ("nothing behind the batches", "rb_narrow_bf16", OTHER, True,
     [("i < count - 4 * quads;", "i < before;")]),
    ("a residual that is infinite", "rb_encode_bf16", OTHER, True,
     [("? difference : 0.0f", "? difference : difference")]),
    ("a sum that is not divided", "rb_reduce_coded_bf16", OTHER, True,
     [("sum.value[e] * factor;", "sum.value[e];")]),
    ("operands whose addresses differ", "rb_reduce_coded_many_bf16", ALIGNED, None,
     [("(differ & (4 * size - 1))", "0")]),
    ("a fused multiply-add", "rb_encode_int8", OTHER, True,
     [("value - scale * code", "fmaf(-scale, code, value)")]),
    ("codes that are cut", "rb_encode_int8", OTHER, True,
     [("code = code + TO_WHOLE - TO_WHOLE;", "")]),
    ("a division by an inverse", "rb_encode_int8", OTHER, True,
     [("value / divisor", "value * (1.0f / divisor)")]),
    ("a scale that is infinite", "rb_reduce_coded_int8", OTHER, True,
     [("finite ? as_bits<float>(most) / MOST : f32::of(0x7fc00000)",
       "as_bits<float>(most) / MOST")]),
    ("a warp that does not wait", "rb_reduce_coded_int8", RACE, False, [("__syncwarp();", "")]),
    ("a lane that does not come", "rb_encode_int8", APART, None,
     [("encode_lane(call, u, lane, load_lane",
       "if (lane < 31 || u != 1)\n\t\t\tencode_lane(call, u, lane, load_lane")]),
    ("a maximum of its own lane", "rb_encode_int8", OTHER, True,
     [("most = __reduce_max_sync(0xffffffff, most);",
       "if (__reduce_max_sync(0xffffffff, most) == 0)\n\t\tmost = 0;")]),
]


def main(arguments):
    kernels, source, header = arguments
    text = pathlib.Path(kernels).read_text()
    kernels_of = {
        name: (call, function)
        for name, call, function in re.findall(r"^KERNEL\((rb_\w+), (\w+), (.+)\)$", text, re.M)
    }
    opening, rest = text.split("namespace\n{\n", 1)
    body = rest.split("} /* namespace */\n", 1)[0]
    out, rows = [opening], []
    for number, (what, kind, ptx, host, changes) in enumerate(FAULTS):
        faulty = body
        for old, new in changes:
            if old not in faulty:
                sys.exit(f"faults.py: {what}: nothing in {kernels} is '{old}'")
            faulty = faulty.replace(old, new)
        call, function = kernels_of.get(kind, ("rb_cuda_reduce", f"reduce<{kind}, true>"))
        kernel = (
            f"namespace fault_{number}\n{{\nnamespace\n{{\n{faulty}}}\n"
            "extern \"C\" __global__ void __launch_bounds__(RB_CUDA_BLOCK)\n"
            f"\trb_fault_{number}(const struct {call} __grid_constant__ call)\n"
            f"{{\n\t{function}(call);\n}}\n}}\n"
        )
        out.append(f"#if defined(__CUDACC__)\n{kernel}#endif\n" if host is None else kernel)
        rows.append(f'\t{{ "{what}", "{kind}", "{ptx}", {0 if host is None else 1 + host} }},\n')
    there = " ".join(
        f"X({number}, {kernels_of.get(fault[1], ['rb_cuda_reduce'])[0]}, "
        f"{str(fault[1].endswith('int8')).lower()})"
        for number, fault in enumerate(FAULTS) if fault[3] is not None
    )
    out.append(f"#define FAULTS(X) {there}\n")
    pathlib.Path(source).write_text("".join(out))
    pathlib.Path(header).write_text(
        "static const struct {\n\tconst char *what, *type, *ptx;\n"
        "\tint host; /* 0: not there; 1: not noticed; 2: noticed. */\n} faults[] = {\n"
        + "".join(rows) + "};\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
