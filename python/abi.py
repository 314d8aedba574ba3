#!/usr/bin/env python3
"""abi.py HEADER OUTPUT -- what rubato.h declares, as a module that cffi loads without a compiler.

The header is the one description of the library: what it declares, Python can call. Macros with a
number become constants.
"""

import pathlib
import re
import sys

import cffi

# Of DLPack (dlpack.h), version 0 of its ABI: how frameworks lend each other tensors.
DLPACK = """
typedef struct { int32_t device_type; int32_t device_id; } DLDevice;
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } DLDataType;
typedef struct {
    void *data; DLDevice device; int32_t ndim; DLDataType dtype;
    int64_t *shape; int64_t *strides; uint64_t byte_offset;
} DLTensor;
"""
NUMBER = re.compile(r"^#define (RUBATO_\w+) (\d+|UINT32_MAX)\s*(?:/\*.*)?$", re.M)


def declarations(text):
    """The declarations of a C header, without what only a preprocessor understands."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"^#(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.M)
    for word in ("RUBATO_API", "RUBATO_NODISCARD"):
        text = re.sub(rf"\b{word}\b", "", text)
    return re.sub(r'extern "C" \{(.*)\}', r"\1", text, flags=re.S)


def main(header, output):
    text = pathlib.Path(header).read_text(encoding="utf-8")
    constants = {name: 2**32 - 1 if value == "UINT32_MAX" else int(value)
                 for name, value in NUMBER.findall(text)}
    builder = cffi.FFI()
    builder.set_source("rubato._abi", None)
    builder.cdef(declarations(text))
    builder.cdef(DLPACK)
    builder.emit_python_code(output)
    with open(output, "a", encoding="utf-8") as file:
        file.write(f"constants = {constants!r}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
