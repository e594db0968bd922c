//! The state of the runtime in one image of one process: where its regions come from, and which there are.
//!
//! Invariants: every access to the state has the lock; a thread's bias is set before anything of this image counts in it; nothing here
//! calls into the subject or libc.

use crate::bias::{bias, set_bias};
use crate::events;
use crate::file::{self, MissingFile};
use crate::fork_page::{self, is_forked};
use crate::image::{self, Image};
use crate::kept::{self, Kept};
use crate::lock::Guard;
use crate::output;
use crate::region::{self, LockLife, Region, RegionSearch};
use crate::stream::{self, ShadowFrames};
use crate::system;
use crate::table::{PINNED, RegionTable};
use crate::text::{self, Failure, Text};
use crate::untested;
use crate::wire::LostReason;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

/// Where regions come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Nothing is known yet.
    Unknown,
    /// Memory that is thrown away.
    Anonymous,
    /// The raw file that the pattern names.
    File,
}

pub struct State {
    pub source: Source,
    /// Between the image's start, or what came before it, and the image's end.
    running: bool,
    process: u32,
    table: RegionTable,
    search: RegionSearch,
    kept: Option<Kept>,
    /// Why nothing is written any more, after it was once.
    lost: Option<LostReason>,
    /// In a child of `fork`: the parent's region, as long as it is still mapped where this process's is to be.
    inherited: Option<Region>,
    /// While a thread forks: its stream's frames.
    forking: Option<ShadowFrames>,
    pattern: Text,
    path: Text,
    scratch: Text,
}

struct Shared(UnsafeCell<State>);

// SAFETY: only touched under the lock.
unsafe impl Sync for Shared {}

/// All zeros, so that it takes no space in the image.
static STATE: Shared = Shared(UnsafeCell::new(State {
    source: Source::Unknown,
    running: false,
    process: 0,
    table: RegionTable::new(),
    search: RegionSearch { next: 0, life: LockLife::Unknown },
    kept: None,
    lost: None,
    inherited: None,
    forking: None,
    pattern: Text::new(),
    path: Text::new(),
    scratch: Text::new(),
}));

/// The state, for the holder of the lock.
pub fn state(_: &mut Guard) -> &mut State {
    // SAFETY: the guard's holder alone touches the state; nested guards exist only between fork handlers, where no
    // borrow is live.
    unsafe { &mut *STATE.0.get() }
}

/// One more region of the raw file for the calling thread's stream: its address.
pub fn another_region() -> Option<usize> {
    let mut guard = Guard::take(is_forked)?;
    state(&mut guard).another_region()
}

/// Threads whose counts are lost, and that could not say so where others find it.
pub static UNSAID: AtomicU32 = AtomicU32::new(0);

/// The file got no region more for a stream, which was said.
static IS_GROWTH_REFUSED: AtomicBool = AtomicBool::new(false);

/// Has the calling thread count in `region`; returns the bias.
pub fn bias_to(region: &Region, image: &Image) -> i64 {
    let value = region.address.wrapping_sub(image.template) as i64;
    set_bias(value, if untested::sees_each_count() { 0 } else { value });
    value
}

impl State {
    pub fn start(&mut self) {
        if self.running {
            return;
        }
        self.running = true;
        self.process = system::process_id();
        fork_page::make();
        if self.source == Source::Unknown {
            text::note_stderr();
            self.find_source();
            untested::prepare(&mut self.path, &mut self.scratch);
            stream::prepare(&mut self.path, &mut self.scratch);
        }
    }

    fn find_source(&mut self) {
        self.source = match output::find_pattern(&mut self.pattern, &mut self.path, &mut self.scratch) {
            Ok(true) => Source::File,
            Ok(false) => Source::Anonymous,
            Err(failure) => self.give_up(&failure),
        };
        let image = Image::from_linker();
        let check = || image.check().and_then(|()| events::of_image().map_or(Ok(()), events::Events::check));
        if self.source == Source::File
            && let Err(failure) = check()
        {
            file::find_path(image.address(), &mut self.path);
            self.source = self.give_up(&failure);
        }
    }

    /// Says why nothing is written from now on.
    fn give_up(&mut self, failure: &Failure) -> Source {
        let subject = if self.path.bytes().is_empty() { b"TRODDEN_OUTPUT" } else { self.path.bytes() };
        text::say(subject, failure, &mut self.scratch);
        self.lost = Some(failure.lost);
        Source::Anonymous
    }

    pub fn enter(&mut self) -> i64 {
        self.start();
        if is_forked() {
            let _ = self.renew();
        }
        let owner = self.owner();
        let region = match self.table.take(self.process, owner) {
            Some(region) => {
                if region.index.is_none() {
                    // Memory of a thread that has ended, whose counts were lost as this one's will be.
                    self.note_lost();
                }
                region
            }
            None => {
                let Some(region) = self.new_region(None) else { return 0 };
                self.table.add(region, owner);
                region
            }
        };
        bias_to(&self.with_events(region, owner), &Image::from_linker())
    }

    /// Gives the calling thread a counter of events, where the image has some. If that fails, it counts nowhere.
    fn with_events(&mut self, region: Region, owner: u32) -> Region {
        let Some(events) = events::of_image().filter(|_| self.source == Source::File) else { return region };
        if owner == PINNED && !events.are_of_processor() {
            // A counter of the child's would be of no use to the parent's thread, which goes on with this region.
            events::report_lost();
            return region;
        }
        events::close(region.event);
        let begun = events.begin();
        self.table.set_event(region.address, begun.as_ref().map_or(0, |event| *event));
        match begun {
            Ok(_) => region,
            Err(failure) => {
                self.path.clear();
                file::find_path(Image::from_linker().address(), &mut self.path);
                self.source = self.give_up(&failure);
                self.note_lost();
                region::anonymous(Image::from_linker().region_words, None).unwrap_or(region)
            }
        }
    }

    /// The region that all threads share never changes its owner, and stays when the image's end comes: other threads may be running.
    pub fn enter_shared(&mut self) -> i64 {
        self.start();
        if is_forked() {
            let _ = self.renew();
        }
        let image = Image::from_linker();
        let Some(bias) = image.shared_bias() else { return 0 };
        if bias.load(SeqCst) == 0 {
            let Some(region) = self.new_region(None) else { return 0 };
            self.table.add(region, PINNED);
            bias.store(region.address.wrapping_sub(image.template) as i64, SeqCst);
        }
        bias.load(SeqCst)
    }

    /// Who owns the calling thread's region. In a child of `vfork` that is the parent's thread, whose TLS this is, and whose id is unknown
    /// here.
    fn owner(&mut self) -> u32 {
        let process = system::process_id();
        if process != self.process {
            let parent = system::parent_id();
            if parent == self.process || parent == 0 {
                return PINNED;
            }
            // It was a child of vfork that came here first.
            self.process = process;
        }
        system::thread_id()
    }

    /// A region of the file; of anonymous memory where there is none, or where it fails.
    fn new_region(&mut self, over: Option<usize>) -> Option<Region> {
        let image = Image::from_linker();
        if self.source == Source::File {
            match self.acquire(&image, over) {
                Ok(region) => return Some(region),
                Err(failure) => self.source = self.give_up(&failure),
            }
        }
        self.note_lost();
        region::anonymous(image.region_words, over).ok()
    }

    /// The same in the place of one of the parent's.
    fn new_region_over(&mut self, address: usize, parents: Option<Region>) -> Option<Region> {
        self.inherited = parents;
        let region = self.new_region(Some(address));
        self.inherited = None;
        region
    }

    /// Notes in the raw file that what a thread counts from now on is lost; if there is one.
    fn note_lost(&mut self) {
        let Some(reason) = self.lost else { return };
        if let Some(region) = self.table.of_file().or(self.inherited) {
            region.note_lost(Image::from_linker().region_words, reason);
        } else if let Some(kept) = kept::check(&mut self.kept) {
            file::note_lost(&kept.raw.descriptor, reason);
        }
    }

    /// The same for threads that could not.
    fn note_unsaid(&mut self) {
        let unsaid = if self.source == Source::File { UNSAID.swap(0, SeqCst) } else { 0 };
        if unsaid > 0
            && let Some(region) = self.table.of_file()
        {
            (0..unsaid).for_each(|_| region.note_lost(Image::from_linker().region_words, LostReason::Other));
        }
    }

    fn acquire(&mut self, image: &Image, over: Option<usize>) -> Result<Region, Failure> {
        let State { search, pattern, path, scratch, kept, process, .. } = self;
        let mut open = || file::open(image, pattern, MissingFile::Make, path, scratch);
        if let Some(kept) = kept::check(kept) {
            return region::acquire(&mut kept.raw, search, *process, over, image.region_words, open);
        }
        let mut raw = open()?;
        let region = region::acquire(&mut raw, search, *process, over, image.region_words, open);
        // A child of vfork has descriptors of its own. Where there is no region, the file is kept to say so.
        if system::process_id() == *process {
            *kept = Kept::new(raw);
        }
        region
    }

    /// A region of the file for a thread that has one already.
    fn another_region(&mut self) -> Option<usize> {
        let owner = self.owner();
        if self.source != Source::File {
            return None;
        }
        let region = match self.acquire(&Image::from_linker(), None) {
            Ok(region) => region,
            Err(failure) => {
                // It is tried again with each chunk, and said once: what is lost is counted.
                if !IS_GROWTH_REFUSED.swap(true, SeqCst) {
                    text::say(self.path.bytes(), &failure, &mut self.scratch);
                }
                return None;
            }
        };
        self.table.add(region, owner);
        Some(region.address)
    }

    /// Before `fork`: keeps the frames of the calling thread's stream.
    pub fn keep_frames(&mut self) {
        let bias = bias();
        if bias != 0 {
            self.forking = ShadowFrames::keep(Image::from_linker().template.wrapping_add(bias as usize));
        }
    }

    /// After `fork`, in the parent: gives up what was kept for the child.
    pub fn drop_frames(&mut self) {
        self.forking.take().into_iter().for_each(ShadowFrames::release);
    }

    /// Makes a child of `fork` count separately from its parent. The address of the forking thread's region stays, since functions that are
    /// under way have its bias in a register. Gives the frames of its stream, which is to begin at that address.
    pub fn renew(&mut self) -> Option<(ShadowFrames, usize)> {
        let image = Image::from_linker();
        self.process = system::process_id();
        fork_page::name();
        let bias = bias();
        let current = if bias == 0 { 0 } else { image.template.wrapping_add(bias as usize) };
        let shared = image.shared_region();
        let parents = [current, shared].map(|address| self.table.of_file_at(address));
        self.table.remove(|address, _| address != current && address != shared, |region| region.unmap(image.region_words));
        self.table.remove(|_, _| true, drop);
        self.search.next = 0;
        self.leave_description(&image);
        let mut event = 0;
        let kept = self.forking.take();
        let frames = if current == 0 { None } else { kept.or_else(|| ShadowFrames::keep(current)) };
        // A thread that has no region has no counter of events either.
        if self.source == Source::File && current != 0 {
            match events::renew() {
                Ok(renewed) => event = renewed,
                Err(failure) => self.source = self.give_up(&failure),
            }
        }
        if current != 0
            && let Some(region) = self.new_region_over(current, parents[0])
        {
            self.table.add(Region { event, ..region }, system::thread_id());
        }
        if shared != 0
            && let Some(region) = self.new_region_over(shared, parents[1])
        {
            self.table.add(region, PINNED);
        }
        self.map_switch();
        frames.map(|frames| (frames, current))
    }

    /// Lets the raw file's switch be that of this image. Where that cannot be done, it stays as it is: off, in a
    /// process that has just started.
    pub fn map_switch(&mut self) {
        let image = Image::from_linker();
        if image.switch == 0 || self.source != Source::File {
            return;
        }
        let Some(kept) = kept::check(&mut self.kept) else { return };
        if system::map_page_to_read(&kept.raw.descriptor, kept.raw.switch_offset, image.switch).is_err() {
            text::say_line(b"trodden: the switch of the sample tier cannot be mapped: nothing is sampled in this process\n");
        }
    }

    /// Leaves the open file description to the parent, for opening the same file again. (Where another file is found, this is another
    /// root.) Where that is impossible, it goes on with that description, but with locks of its own.
    fn leave_description(&mut self, image: &Image) {
        let State { source, pattern, path, scratch, kept, .. } = self;
        kept::check(kept);
        let Some(mut inherited) = kept.take() else { return };
        if *source != Source::File {
            return;
        }
        let per_process = output::is_per_process(pattern);
        let missing = if per_process { MissingFile::Make } else { MissingFile::Refuse };
        let own = file::open(image, pattern, missing, path, scratch).ok().and_then(Kept::new);
        *kept = own.filter(|own| per_process || own.is_same_file(&inherited));
        if kept.is_none() {
            inherited.raw.descriptor.lock_for_process();
            *kept = Some(inherited);
        }
    }

    /// Other threads may be running (at the process's end), so their regions stay; the kernel frees them, or they stay.
    pub fn finish(&mut self) {
        if !self.running {
            return;
        }
        self.note_unsaid();
        let image = Image::from_linker();
        let (process, bias) = (self.process, bias());
        let current = if bias == 0 { 0 } else { image.template.wrapping_add(bias as usize) };
        set_bias(0, 0);
        stream::end_thread();
        events::end_thread();
        let runs = |address, owner| address != current && (owner == PINNED || !system::thread_is_gone(process, owner));
        // A thread that has joined another may come here before the kernel is done with it. What is not given back then
        // is lost with a library.
        if !image::is_program() {
            let mut patience = 10;
            while patience > 0 && self.table.any(|address, owner| owner != PINNED && runs(address, owner)) {
                system::sleep_ms(1);
                patience -= 1;
            }
        }
        let kept = kept::check(&mut self.kept);
        let raw = kept.map(|kept| &kept.raw);
        self.table.remove(
            |address, owner| !runs(address, owner),
            |region| {
                events::close(region.event);
                region.release(raw, process, image.region_words);
            },
        );
        if self.table.is_empty() {
            self.kept = None;
            self.search.next = 0;
            fork_page::unmake();
            self.running = false;
        }
    }
}
