#!/usr/bin/env python3
"""peer_torch.py -- resnet20 and gpt of rubato-train in eager PyTorch, to be measured beside ours.

usage: peer_torch.py cpu|cuda

Says in one line of JSON what it runs on. Then each line of standard input is a run, as JSON, and is
answered by one: parameters, the loss of each step, seconds of the steps after `warm`; or an error.
One process does all runs: starting PyTorch takes seconds. Exit status: 77 where there is no PyTorch
or no such device, which it says; 0 at the end of its input.

It is the same model: parameters come from the `initial.npy` of a run of ours, array by array in our
order, and must be as many (`speed.py peer` compares losses). Batches come from the
host's memory, gathered sample by sample into pinned memory. As in ours each step's loss is read,
once all of the step has been handed to the device.

What is eager PyTorch of this model is not one thing, so there are several forms:
  plain          as one writes it down: defaults; attention as products and a softmax
  tuned          cuDNN tries its algorithms, the optimizer is one kernel, attention is
                 scaled_dot_product_attention
  channels-last  of images, as well
"""

import ast
import json
import pathlib
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:
    print("skipped: this Python has no PyTorch")
    sys.exit(77)

TYPES = {"<f4": torch.float32, "<i4": torch.int32}


def array_read(path):
    """An array in the form of NumPy, which need not be there."""
    data = path.read_bytes()
    head = 10 + int.from_bytes(data[8:10], "little")
    described = ast.literal_eval(data[10:head].decode())
    assert not described["fortran_order"]
    flat = torch.frombuffer(bytearray(data[head:]), dtype=TYPES[described["descr"]])
    return flat.reshape(described["shape"])


# ---- Models, with their arrays in our order ----


class Block(nn.Module):
    """Of two convolutions; its shortcut has no parameters (option A)."""

    def __init__(self, ins, outs):
        super().__init__()
        self.stride, self.more = (1, 0) if ins == outs else (2, outs - ins)
        self.first = nn.Conv2d(ins, outs, 3, self.stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outs)
        self.second = nn.Conv2d(outs, outs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outs)

    def forward(self, x):
        y = functional.relu(self.norm1(self.first(x)))
        y = self.norm2(self.second(y))
        if self.more > 0:
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.more))
        return functional.relu(y + x)


class Resnet20(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.first = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        widths = [16] * 4 + [32] * 3 + [64] * 3
        self.blocks = nn.Sequential(*(Block(a, b) for a, b in zip(widths, widths[1:])))
        self.last = nn.Linear(64, classes)

    def forward(self, x):
        x = self.blocks(functional.relu(self.norm(self.first(x))))
        return self.last(x.mean((2, 3)))


class Layer(nn.Module):
    def __init__(self, width, heads, fused):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def attend(self, x):
        rows, length, width = x.shape
        q, k, v = (part.view(rows, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(x).split(width, 2))
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(2, 3) * (width // self.heads) ** -0.5
            future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            mixed = scores.masked_fill(future, float("-inf")).softmax(3) @ v
        return self.mix(mixed.transpose(1, 2).reshape(rows, length, width))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary, context, width, heads, layers, fused):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.layers = nn.Sequential(*(Layer(width, heads, fused) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.outputs = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x):
        x = self.tokens(x) + self.positions.weight
        return self.outputs(self.norm(self.layers(x))).flatten(0, 1)


def fill(model, flat):
    """All parameters, in the order in which they are said above, which is ours."""
    begin = 0
    with torch.no_grad():
        for parameter in model.parameters():
            piece = flat[begin:begin + parameter.numel()]
            if len(piece) < parameter.numel():
                break
            parameter.copy_(piece.view(parameter.shape))
            begin += parameter.numel()
    count = sum(parameter.numel() for parameter in model.parameters())
    if count != len(flat):
        raise ValueError(f"{count} parameters here, {len(flat)} in ours")
    return count


# ---- Samples: inputs, and what is to be said of each; all lie in the host's memory ----


def images(folder):
    return array_read(folder / "x.npy"), array_read(folder / "y.npy").long()


def blocks(path, context):
    """Of a text: bytes by their value, from 1; each is told from those before it. Every tenth block
    is for tests. Also how many tokens there are."""
    data = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).long()
    kinds = data.unique()
    which = torch.zeros(256, dtype=torch.long)
    which[kinds] = torch.arange(1, len(kinds) + 1)
    count = len(data) // context
    outs = which[data[:count * context]]
    ins = torch.cat([torch.zeros(1, dtype=torch.long), outs[:-1]])
    training = torch.arange(count) % 10 != 9
    return ins.view(-1, context)[training], outs.view(-1, context)[training], len(kinds) + 1


def orders(count, batch, shuffle):
    """Which samples a step reads, for ever: an epoch leaves out what makes no batch."""
    while True:
        order = torch.randperm(count) if shuffle else torch.arange(count)
        for begin in range(0, count - count % batch, batch):
            yield order[begin:begin + batch]


class Staging:
    """Brings a batch to the device by way of memory that it can read by itself."""

    def __init__(self, samples, batch, device):
        self.samples = samples
        self.device = device
        self.room = torch.empty((batch, *samples.shape[1:]), dtype=samples.dtype,
                                pin_memory=device.type == "cuda")

    def bring(self, which):
        torch.index_select(self.samples, 0, which, out=self.room)
        return self.room.to(self.device, non_blocking=True)


# ---- A run ----


def optimizer_of(run, model, device):
    fused = run["form"] != "plain" and device.type == "cuda"
    if run["optimizer"] == "adam":
        return torch.optim.Adam(model.parameters(), lr=run["lr"], fused=fused)
    return torch.optim.SGD(model.parameters(), lr=run["lr"], momentum=run["momentum"],
                           weight_decay=run["weight_decay"], fused=fused)


def model_of(run, folder):
    if run["model"] == "resnet20":
        ins, outs = images(folder / run["data"])
        return Resnet20(ins.shape[1], int(outs.max()) + 1), ins, outs
    ins, outs, vocabulary = blocks(folder / run["data"], run["context"])
    return Gpt(vocabulary, run["context"], run["width"], run["heads"], run["layers"],
               run["form"] != "plain"), ins, outs


def measured(run, device):
    torch.backends.cudnn.benchmark = run["form"] != "plain"
    torch.backends.cuda.matmul.allow_tf32 = run["precision"] == "tf32"
    torch.backends.cudnn.allow_tf32 = run["precision"] == "tf32"
    folder = pathlib.Path(run["folder"])
    model, ins, outs = model_of(run, folder)
    count = fill(model, array_read(folder / run["initial"]))
    model.to(device)
    last = run["form"] == "channels-last"
    if last:
        model.to(memory_format=torch.channels_last)
    optimizer = optimizer_of(run, model, device)
    inputs, answers = (Staging(samples, run["batch"], device) for samples in (ins, outs))
    order = orders(len(ins), run["batch"], run["shuffle"])
    on_device = device.type == "cuda"
    said = torch.empty(1, pin_memory=on_device)
    forward_done = torch.cuda.Event() if on_device else None
    losses = []
    for step in range(run["warm"] + run["steps"]):
        if step == run["warm"]:
            if on_device:
                torch.cuda.synchronize()
            start = time.perf_counter()
        which = next(order)
        x, y = inputs.bring(which), answers.bring(which)
        if last:
            x = x.contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, run["precision"] == "bfloat16"):
            loss = functional.cross_entropy(model(x), y.flatten())
        said.copy_(loss.detach().view(1), non_blocking=True)
        if on_device:
            forward_done.record()
        loss.backward()
        optimizer.step()
        if on_device:
            forward_done.synchronize()
        losses.append(float(said))
    if on_device:
        torch.cuda.synchronize()
    return {"parameters": count, "losses": losses, "seconds": time.perf_counter() - start}


def main():
    if sys.argv[1:] not in (["cpu"], ["cuda"]):
        print(__doc__.strip())
        return 2
    device = torch.device(sys.argv[1])
    if device.type == "cuda" and not torch.cuda.is_available():
        print("skipped: PyTorch has no CUDA device here")
        return 77
    if device.type == "cpu":
        torch.set_num_threads(1)  # As ours.
    about = {"torch": torch.__version__, "device": sys.argv[1]}
    if device.type == "cuda":
        about.update(device=torch.cuda.get_device_name(), cuda=torch.version.cuda,
                     cudnn=torch.backends.cudnn.version())
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        try:
            answer = measured(json.loads(line), device)
        except (RuntimeError, ValueError, OSError) as error:
            answer = {"error": " ".join(str(error).split())}
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
