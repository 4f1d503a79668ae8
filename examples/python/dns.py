"""Lookups beside each other, none of which holds the loop up: python dns.py localhost 127.0.0.1"""
import asyncio
import socket
import sys

import treadle


async def look_up(name):
    try:
        rows = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return f"{name}: {error.strerror}"
    return f"{name}: {', '.join(row[4][0] for row in rows)}"


async def main(names):
    for answer in await asyncio.gather(*map(look_up, names)):
        print(answer)


if __name__ == "__main__":
    treadle.run(main(sys.argv[1:]))
