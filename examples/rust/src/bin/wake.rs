//! A wake under tokio: threads post to an inbox, a task awaits what comes.
use std::io;
use std::sync::Arc;
use tokio::io::{unix::AsyncFd, Interest};
use treadle_sys::*;

/// A link is first in what is posted, so the one is the other.
#[repr(C)]
struct Message {
    link: [u64; 2],
    number: u64,
}

struct Mailbox {
    wake: Block,
    inbox: Block,
}

impl Mailbox {
    fn open() -> io::Result<Arc<Mailbox>> {
        assert!(Block::size(c"tdl_link") <= std::mem::size_of::<[u64; 2]>());
        let mailbox = Mailbox {
            wake: Block::new(c"tdl_wake"),
            inbox: Block::new(c"tdl_inbox"),
        };
        match unsafe { tdl_wake_open(mailbox.wake.raw(), std::ptr::null()) } {
            0 => unsafe {
                tdl_inbox_init(mailbox.inbox.raw(), mailbox.wake.raw(), std::ptr::null())
            },
            code => return Err(io::Error::from_raw_os_error(-code)),
        }
        Ok(Arc::new(mailbox))
    }

    /// The message is the receiver's from here on.
    fn post(&self, number: u64) {
        let message = Box::into_raw(Box::new(Message {
            link: [0; 2],
            number,
        }));
        if unsafe { tdl_inbox_post(self.inbox.raw(), message.cast()) } != 0 {
            drop(unsafe { Box::from_raw(message) }); // closed
        }
    }

    fn take(&self) -> Vec<u64> {
        let mut numbers = Vec::new();
        let mut link = unsafe { tdl_inbox_take(self.inbox.raw()) };
        while !link.is_null() {
            let message = unsafe { Box::from_raw(link.cast::<Message>()) };
            link = unsafe { *field::<Raw>(link, c"tdl_link.next") };
            numbers.push(message.number);
        }
        numbers
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.take();
        unsafe {
            tdl_inbox_close(self.inbox.raw());
            tdl_wake_close(self.wake.raw());
        }
    }
}

/// From its making to its end the task is about to sleep; it ends too when the task is canceled.
struct Park<'a>(&'a Mailbox);

impl<'a> Park<'a> {
    fn begin(mailbox: &'a Mailbox) -> Park<'a> {
        unsafe { tdl_wake_park_begin(mailbox.wake.raw()) };
        Park(mailbox)
    }
}

impl Drop for Park<'_> {
    fn drop(&mut self) {
        unsafe { tdl_wake_park_end(self.0.wake.raw()) };
    }
}

async fn receive(mailbox: &Mailbox, fd: &AsyncFd<i32>) -> io::Result<Vec<u64>> {
    loop {
        let numbers = mailbox.take();
        if !numbers.is_empty() {
            return Ok(numbers);
        }
        let park = Park::begin(mailbox);
        if unsafe { tdl_inbox_is_empty(mailbox.inbox.raw()) } {
            let mut ready = fd.readable().await?;
            drop(park); // reads the descriptor, so it is no longer ready
            ready.clear_ready();
        }
    }
}

fn main() -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?
        .block_on(async {
            let mailbox = Mailbox::open()?;
            let fd = unsafe {
                AsyncFd::register_with_interest(
                    tdl_wake_fd(mailbox.wake.raw()),
                    Interest::READABLE,
                )?
            };
            let senders: Vec<_> = (1..=4)
                .map(|number| (Arc::clone(&mailbox), number))
                .map(|(mailbox, number)| std::thread::spawn(move || mailbox.post(number)))
                .collect();
            let mut numbers = Vec::new();
            while numbers.len() < 4 {
                numbers.extend(receive(&mailbox, &fd).await?);
            }
            senders
                .into_iter()
                .for_each(|sender| sender.join().unwrap());
            numbers.sort();
            println!("received {numbers:?}");
            Ok(())
        })
}
