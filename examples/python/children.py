"""Two child processes at once, their output as it comes: python children.py"""
import asyncio
import sys

import treadle


async def follow(name, *command):
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    async for line in child.stdout:
        print(f"{name}: {line.decode()}", end="")
    print(f"{name}: ended with {await child.wait()}")


async def main():
    await asyncio.gather(
        follow("first", sys.executable, "-c", "print('one'); print('two')"),
        follow("second", sys.executable, "-c", "import sys; sys.exit(3)"),
    )


if __name__ == "__main__":
    treadle.run(main())
