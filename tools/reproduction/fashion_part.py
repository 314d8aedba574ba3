"""fashion_part.py -- the first samples of Fashion-MNIST's training set, with the whole test set."""

import gzip

from reproduction.common import FASHION, PIXELS, Failed, floats, write_npy


def part(folder, rows, source=FASHION):
    """Writes it as npy:FOLDER and returns the word for --data."""
    folder.mkdir(parents=True, exist_ok=True)
    pixel = [floats([(value / 255 - 0.286) / 0.353]) for value in range(256)]
    for name, suffix, count in ("train", "", rows), ("t10k", "_test", None):
        try:
            with gzip.open(source / f"{name}-images-idx3-ubyte.gz") as file:
                images = file.read()[16:]
            with gzip.open(source / f"{name}-labels-idx1-ubyte.gz") as file:
                labels = file.read()[8:]
        except OSError as error:
            raise Failed(f"Fashion-MNIST: {error} (package dataset-fashion-mnist)") from None
        count = count or len(labels)
        write_npy(folder / f"x{suffix}.npy", "<f4", (count, PIXELS),
                  (b"".join(map(pixel.__getitem__, images[i * PIXELS:(i + 1) * PIXELS]))
                   for i in range(count)))
        write_npy(folder / f"y{suffix}.npy", "|u1", (count,), labels[:count])
    return f"npy:{folder}"
