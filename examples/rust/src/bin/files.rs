//! Files under tokio, without its threads: every file of the command line is read in one batch.
use std::ffi::CString;
use std::io;
use tokio::io::{unix::AsyncFd, Interest};
use treadle_sys::*;

struct Read {
    op: Block,
    path: CString,
    bytes: Box<[u8]>,
}

impl Read {
    fn new(path: String) -> Box<Read> {
        let path = CString::new(path).expect("a path without NUL");
        let mut read = Box::new(Read {
            op: Block::new(c"tdl_fop"),
            path,
            bytes: vec![0; 65536].into(),
        });
        let (buffer, length) = (read.bytes.as_mut_ptr().cast(), read.bytes.len());
        unsafe {
            tdl_fop_read_file(
                read.op.raw(),
                libc::AT_FDCWD,
                read.path.as_ptr(),
                buffer,
                length,
            )
        };
        read
    }

    fn result(&self) -> io::Result<&[u8]> {
        match unsafe { *field::<i64>(self.op.raw(), c"tdl_fop.result") } {
            length @ 0.. => Ok(&self.bytes[..length as usize]),
            code => Err(io::Error::from_raw_os_error(-code as i32)),
        }
    }
}

struct Files(Block);

impl Files {
    fn open() -> io::Result<Files> {
        let files = Files(Block::new(c"tdl_fio"));
        check(unsafe { tdl_fio_open(files.0.raw(), std::ptr::null()) })?;
        Ok(files)
    }

    /// The reads stay here until the kernel is done with them. `self` is borrowed by whoever canceled the future, and
    /// the buffers would be freed under the kernel, so this example awaits it to its end.
    async fn run(&self, reads: &[Box<Read>]) -> io::Result<()> {
        let (fio, finished) = (self.0.raw(), Block::new(c"tdl_queue"));
        let fd = unsafe {
            AsyncFd::register_with_interest(check(tdl_fio_fd(fio))?, Interest::READABLE)?
        };
        let mut left = reads.len();
        unsafe {
            tdl_queue_init(finished.raw());
            tdl_fio_hold(fio, true);
            for read in reads {
                check(tdl_fio_stage(fio, read.op.raw()))?;
            }
            tdl_fio_hold(fio, false);
        }
        while left > 0 {
            if unsafe { tdl_fio_wants_flush(fio) } {
                check(unsafe { tdl_fio_flush(fio) })?;
            }
            fd.readable().await?.clear_ready();
            unsafe {
                tdl_fio_step(fio);
                left -= tdl_fio_reap(fio, finished.raw());
                while !tdl_queue_is_empty(finished.raw()) {
                    tdl_fop_of(tdl_queue_pop(finished.raw()));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        unsafe { tdl_fio_close(self.0.raw(), std::ptr::null_mut()) };
    }
}

fn check(code: i32) -> io::Result<i32> {
    if code < 0 {
        return Err(io::Error::from_raw_os_error(-code));
    }
    Ok(code)
}

fn main() -> io::Result<()> {
    let reads: Vec<_> = std::env::args().skip(1).map(Read::new).collect();
    let files = Files::open()?; // behind the reads: it is closed before they are freed
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?
        .block_on(files.run(&reads))?;
    for read in &reads {
        match read.result() {
            Ok(bytes) => println!("{}: {} bytes", read.path.to_string_lossy(), bytes.len()),
            Err(error) => println!("{}: {error}", read.path.to_string_lossy()),
        }
    }
    Ok(())
}
