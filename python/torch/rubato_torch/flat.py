"""Tensors as one vector, one after the other in their order, and what is done to the parameters of
an optimizer through it."""

import warnings
from typing import Any, Dict, Iterable, List, Optional

import numpy as np
import torch


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank has of it: of one that several ranks hold together (a DTensor), its part."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Flat:
    """Where each of some tensors lies in a vector of float32: what this rank has of each."""

    def __init__(self, tensors: Iterable[torch.Tensor]):
        self.tensors: List[torch.Tensor] = list(tensors)
        self.places: Dict[int, slice] = {}
        begin = 0
        for tensor in self.tensors:
            end = begin + local(tensor).numel()
            self.places[id(tensor)] = slice(begin, end)
            begin = end
        self.count = begin
        if len(self.places) < len(self.tensors):
            raise ValueError("a tensor is there twice")

    def part(self, vector: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        """The part of a vector that is of a tensor, in its shape."""
        try:
            place = self.places[id(tensor)]
        except KeyError:
            raise ValueError("a parameter that was not the model's when this was made") from None
        return vector[place].view(local(tensor).shape)

    @torch.no_grad()
    def read(self, vector: torch.Tensor) -> None:
        """The tensors' values go into a vector."""
        for tensor in self.tensors:
            self.part(vector, tensor).copy_(local(tensor))

    @torch.no_grad()
    def write(self, vector: torch.Tensor) -> None:
        """And back."""
        for tensor in self.tensors:
            local(tensor).copy_(self.part(vector, tensor))

    @torch.no_grad()
    def pull(self, vector: torch.Tensor, share: float) -> None:
        """The tensors go this share of the way to a vector."""
        for tensor in self.tensors:
            mine = local(tensor)
            mine.add_(self.part(vector, tensor).to(mine.device) - mine, alpha=share)

    @torch.no_grad()
    def read_gradients(self, vector: torch.Tensor) -> None:
        """The tensors' gradients go into a vector: zeros of those that have none."""
        for tensor in self.tensors:
            part = self.part(vector, tensor)
            if tensor.grad is None:
                part.zero_()
            else:
                part.copy_(local(tensor.grad))

    @torch.no_grad()
    def gradients(self, vector: torch.Tensor) -> None:
        """The vector becomes the tensors' gradients."""
        for tensor in self.tensors:
            if tensor.grad is None:
                tensor.grad = torch.empty_like(tensor)
            local(tensor.grad).copy_(self.part(vector, tensor))

    def no_gradients(self) -> None:
        """What an optimizer passes by."""
        for tensor in self.tensors:
            tensor.grad = None


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """The same memory. Of an array that is lent for reading, torch warns: it is only read here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable")
        return torch.from_numpy(array)


def clip(vector: torch.Tensor, most: Optional[float]) -> torch.Tensor:
    """The vector, no longer than this."""
    if most is None:
        return vector
    norm = float(torch.linalg.vector_norm(vector, dtype=torch.float64))
    return vector * (most / norm) if norm > most else vector


def set_rate(optimizer: torch.optim.Optimizer, rate: Optional[float]) -> float:
    """Gives all groups this learning rate, where there is one; returns the first group's."""
    if rate is not None:
        for group in optimizer.param_groups:
            group["lr"] = rate
    return float(optimizer.param_groups[0]["lr"])


def write(writer: Any, step: int, scope: str = "", **values: Optional[float]) -> None:
    """To TensorBoard, say: those that are there."""
    for name, value in values.items():
        if writer is not None and value is not None:
            writer.add_scalar(f"rubato/{scope}{name}", value, step)
