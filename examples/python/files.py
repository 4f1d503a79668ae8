"""Files without threads: writes a hundred files, reads them in batches, and a line at a time: python files.py
FOLDER"""
import asyncio
import pathlib
import sys

import treadle
from treadle import fileio


async def main(folder):
    paths = [folder / f"{number}.txt" for number in range(100)]
    await asyncio.gather(*(fileio.write_text(path, f"{path.name}\nlast line\n") for path in paths))
    # All are under way at once; the loop gives them to the kernel together.
    texts = await asyncio.gather(*(fileio.read_text(path) for path in paths))
    print(sum(map(len, texts)), "characters")
    async with fileio.open(paths[42]) as file:
        async for line in file:
            print(line, end="")


if __name__ == "__main__":
    treadle.run(main(pathlib.Path(sys.argv[1])))
