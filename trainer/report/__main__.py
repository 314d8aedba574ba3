"""rubato-report -- one page, without any network, of what one or several training runs did.

usage: rubato-report [-o FILE] RUN...
       rubato-report --help | --version

RUN is a folder that rubato-train --out wrote; the first is what others are compared with. The page
is written to FILE, without -o to RUN/report.html, of several runs to report.html here. It can be
opened from disk, sent and printed. A file that is missing or broken is named, and what is there is
shown. Exit status: 0 when there is a page; 2 for a bad option or a folder that does not exist; 1
when a folder holds no run, or the page cannot be written.
"""

import os
import sys

import page
import runs
import version  # Beside these where they are packed.

NAME = "rubato-report"


class Refused(Exception):
    """The command line is wrong."""


def read_words(words):
    folders, output, options = [], None, True
    words = list(words)
    while words:
        word = words.pop(0)
        if not options or not word.startswith("-"):
            folders.append(word)
        elif word == "--":
            options = False
        elif word in ("-o", "--output"):
            if not words:
                raise Refused(f"{word} needs a file")
            output = words.pop(0)
        elif word.startswith("--output="):
            output = word.removeprefix("--output=")
        else:
            raise Refused(f"{word}: unknown option (--help lists them)")
    if not folders:
        raise Refused("names no run: a folder that rubato-train --out wrote")
    for folder in folders:
        if not os.path.isdir(folder):
            raise Refused(f"{folder}: there is no such folder")
    if output == "":
        raise Refused("-o needs a file")
    default = os.path.join(folders[0], "report.html") if len(folders) == 1 else "report.html"
    return folders, output or default


def replaced(path):
    """The regular file that is, or will be, at the end of `path`; None: it is written as it is, as
    a device, a pipe, what is open (/dev/stdout) and links to nothing or to others' folders are."""
    if not os.path.islink(path):
        return None if os.path.exists(path) and not os.path.isfile(path) else path
    end = os.path.realpath(path)
    fits = (os.path.isfile(end) and os.access(os.path.dirname(end), os.W_OK)
            and not path.startswith(("/dev/", "/proc/")))
    return end if fits else None


def write(path, text):
    """Whole or not at all, where that can be."""
    end = replaced(path)
    if end is None:
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        return
    beside = f"{end}.{os.getpid()}.part"
    try:
        # Names of files need not be UTF-8; the page is.
        with open(beside, "x", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.replace(beside, end)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise


def say(text):
    print(f"{NAME}: {' '.join(str(text).split())}", file=sys.stderr)


def standard(text):
    """Prints it; the exit status."""
    if sys.stdout is None:
        say("standard output could not be written: it is closed")
        return 1
    try:
        sys.stdout.reconfigure(errors="surrogateescape")  # A name's own bytes.
        print(text, flush=True)
        return 0
    except OSError as error:
        say(f"standard output could not be written: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # What is left is not tried again.
        return 1


def manual():
    """What --help says, as a manual page."""
    idea, usage, rest = __doc__.strip().replace("-", r"\-").split("\n\n")
    usage = usage.removeprefix("usage: ").replace("\n" + 7 * " ", "\n.br\n")
    parts = {"NAME": idea.replace(r" \-\- ", r" \- "), "SYNOPSIS": usage,
             "DESCRIPTION": rest, "SEE ALSO": r".BR rubato\-train (1)"}
    return "\n".join([f'.TH {NAME} 1 "" "" "Rubato"',
                      *(f".SH {head}\n{text}" for head, text in parts.items())])


def main(words):
    options = words[:words.index("--")] if "--" in words else words
    if "--help" in options:
        return standard(__doc__.split("\n\n", 1)[1].strip())
    if "--help=man" in options:
        return standard(manual())
    if "--version" in options:
        return standard(f"{NAME} {version.VERSION}")
    try:
        folders, output = read_words(words)
        found = runs.read_all(folders)
        write(output, page.make(found))
    except Refused as error:
        say(error)
        return 2
    except runs.Unusable as error:
        say(error)
        return 1
    except OSError as error:
        say(f"{error.filename or output}: {error.strerror}")
        return 1
    for run in found:
        for problem in run.problems:
            say(f"{run.folder}: {problem}")
    return standard(output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
