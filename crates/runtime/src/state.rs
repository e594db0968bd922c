//! The runtime's state for one image in one process: its regions, and where further regions come from.
//!
//! Invariants: the state is only accessed with the lock held; a thread's bias is set before the thread counts; no function of this file
//! calls the instrumented program or libc.

use crate::bias::{set_thread_bias, thread_bias};
use crate::events;
use crate::file::{self, ActionIfFileMissing};
use crate::fork_page::{self, is_forked};
use crate::image::{self, OwnImage};
use crate::kept::{self, KeptOpenFile};
use crate::lock::Guard;
use crate::output;
use crate::region::{self, FreeRegionSearch, LockLifetime, Region};
use crate::stream::{self, ShadowFrames};
use crate::system;
use crate::table::{PINNED_REGION_OWNER, RegionTable, is_without_owner};
use crate::text::{self, OutputFailure, Text};
use crate::untested;
use crate::wire::LostReason;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RegionSource {
    Unknown,
    /// Memory whose counts are discarded.
    Anonymous,
    /// The raw file that the output pattern names.
    File,
}

pub struct RuntimeState {
    pub source: RegionSource,
    /// True from the image's start (or from its first use, if that is earlier) until the image's end.
    is_running: bool,
    process: u32,
    table: RegionTable,
    search: FreeRegionSearch,
    kept: Option<KeptOpenFile>,
    /// Why output is disabled; `None` if it is not.
    lost: Option<LostReason>,
    /// In a child of `fork`: the parent's region, until the child's own region replaces it at the same address.
    inherited: Option<Region>,
    /// The frames of the calling thread's stream, while it forks.
    saved_frames: Option<ShadowFrames>,
    pattern: Text,
    path: Text,
    scratch: Text,
}

struct GlobalStateCell(UnsafeCell<RuntimeState>);

// SAFETY: the state is only accessed with the lock held.
unsafe impl Sync for GlobalStateCell {}

/// The state consists of zeros at first, so that it takes no space in the image's file.
static GLOBAL_STATE: GlobalStateCell = GlobalStateCell(UnsafeCell::new(RuntimeState {
    source: RegionSource::Unknown,
    is_running: false,
    process: 0,
    table: RegionTable::new(),
    search: FreeRegionSearch { next: 0, life: LockLifetime::Unknown },
    kept: None,
    lost: None,
    inherited: None,
    saved_frames: None,
    pattern: Text::new(),
    path: Text::new(),
    scratch: Text::new(),
}));

pub fn state(_: &mut Guard) -> &mut RuntimeState {
    // SAFETY: only a thread that holds the guard accesses the state. Guards are only nested between fork handlers, where no reference is
    // live.
    unsafe { &mut *GLOBAL_STATE.0.get() }
}

/// Acquires another region for the calling thread's stream. Returns its address; `None` if there is no raw file or an error occurs.
pub fn add_region() -> Option<usize> {
    let mut guard = Guard::take_lock(is_forked)?;
    state(&mut guard).add_region()
}

/// Number of threads whose lost counts could not be recorded in the raw file.
pub static UNREPORTED_LOSSES: AtomicU32 = AtomicU32::new(0);

/// True once the user was told that a stream could not get another region.
static IS_GROWTH_FAILURE_REPORTED: AtomicBool = AtomicBool::new(false);

/// Makes the calling thread count in `region`. Returns its new bias.
pub fn set_bias_to(region: &Region, image: &OwnImage) -> i64 {
    let value = region.address.wrapping_sub(image.template) as i64;
    set_thread_bias(value, if untested::is_called_for_each_count() { 0 } else { value });
    value
}

impl RuntimeState {
    pub fn start_image(&mut self) {
        if self.is_running {
            return;
        }
        self.is_running = true;
        self.process = system::process_id();
        fork_page::create_fork_page();
        if self.source == RegionSource::Unknown {
            text::save_stderr_identity();
            self.find_region_source();
            untested::prepare_untested_settings(&mut self.path, &mut self.scratch);
            stream::prepare_stream_settings(&mut self.path, &mut self.scratch);
        }
    }

    fn find_region_source(&mut self) {
        self.source = match output::find_output_pattern(&mut self.pattern, &mut self.path, &mut self.scratch) {
            Ok(true) => RegionSource::File,
            Ok(false) => RegionSource::Anonymous,
            Err(failure) => self.disable_output(&failure),
        };
        let image = OwnImage::from_linker();
        let check = || image.check().and_then(|()| events::event_counted_by_image().map_or(Ok(()), events::CountedImageEvent::check));
        if self.source == RegionSource::File
            && let Err(failure) = check()
        {
            file::find_path_of_mapping(image.address(), &mut self.path);
            self.source = self.disable_output(&failure);
        }
    }

    /// Tells the user why nothing is written from now on. Returns the region source to use instead.
    fn disable_output(&mut self, failure: &OutputFailure) -> RegionSource {
        let subject = if self.path.bytes().is_empty() { b"TRODDEN_OUTPUT" } else { self.path.bytes() };
        text::print_failure(subject, failure, &mut self.scratch);
        self.lost = Some(failure.lost);
        RegionSource::Anonymous
    }

    pub fn enter_thread(&mut self) -> i64 {
        self.start_image();
        if is_forked() {
            let _ = self.restart_in_child();
        }
        let owner = self.current_owner();
        let region = match self.table.assign_region(self.process, owner) {
            Some(region) => {
                if region.index.is_none() {
                    // This is memory of a thread that has ended, whose counts are discarded, so this thread's counts are lost as well.
                    self.record_lost_thread();
                }
                region
            }
            None => {
                let Some(region) = self.acquire_region(None) else { return 0 };
                self.table.add(region, owner);
                region
            }
        };
        set_bias_to(&self.open_event_counter_for(region, owner), &OwnImage::from_linker())
    }

    /// If the image counts an event, opens an event counter for the calling thread. If that fails, the thread's counts are discarded.
    fn open_event_counter_for(&mut self, region: Region, owner: u32) -> Region {
        let Some(events) = events::event_counted_by_image().filter(|_| self.source == RegionSource::File) else { return region };
        if owner == PINNED_REGION_OWNER && !events.is_read_inline() {
            // This is a child of `vfork`. A counter opened here would be useless to the parent's thread, which goes on using this region.
            events::report_lost_event_counts();
            return region;
        }
        events::close_counter(region.event);
        let opened = events.begin_counting();
        self.table.set_event(region.address, opened.as_ref().map_or(0, |event| *event));
        match opened {
            Ok(_) => region,
            Err(failure) => {
                self.path.clear();
                file::find_path_of_mapping(OwnImage::from_linker().address(), &mut self.path);
                self.source = self.disable_output(&failure);
                self.record_lost_thread();
                region::map_anonymous(OwnImage::from_linker().region_words, None).unwrap_or(region)
            }
        }
    }

    /// Acquires the region that all threads share, unless there is one. Returns its bias. The region never changes its owner, and is kept
    /// after the image's end, because other threads may still be running.
    pub fn enter_shared_region(&mut self) -> i64 {
        self.start_image();
        if is_forked() {
            let _ = self.restart_in_child();
        }
        let image = OwnImage::from_linker();
        let Some(bias) = image.shared_bias() else { return 0 };
        if bias.load(SeqCst) == 0 {
            let Some(region) = self.acquire_region(None) else { return 0 };
            self.table.add(region, PINNED_REGION_OWNER);
            bias.store(region.address.wrapping_sub(image.template) as i64, SeqCst);
        }
        bias.load(SeqCst)
    }

    /// Returns the ID of the thread that owns the calling thread's region. A child of `vfork` uses the thread-local storage of its parent's
    /// thread, whose ID is unknown; then the owner is [`PINNED_REGION_OWNER`].
    fn current_owner(&mut self) -> u32 {
        let process = system::process_id();
        if process != self.process {
            let parent = system::parent_id();
            if parent == self.process || parent == 0 {
                return PINNED_REGION_OWNER;
            }
            // The state was set up by a child of `vfork`, and this is its parent.
            self.process = process;
        }
        system::thread_id()
    }

    /// Acquires a region of the raw file; if there is no file or that fails, one of anonymous memory.
    fn acquire_region(&mut self, over: Option<usize>) -> Option<Region> {
        let image = OwnImage::from_linker();
        if self.source == RegionSource::File {
            match self.acquire_file_region(&image, over) {
                Ok(region) => return Some(region),
                Err(failure) => self.source = self.disable_output(&failure),
            }
        }
        self.record_lost_thread();
        region::map_anonymous(image.region_words, over).ok()
    }

    /// Acquires a region and maps it at `address`, where the parent's region is now.
    fn replace_region(&mut self, address: usize, parents: Option<Region>) -> Option<Region> {
        self.inherited = parents;
        let region = self.acquire_region(Some(address));
        self.inherited = None;
        region
    }

    /// Records that a thread's counts are lost from now on, if the raw file was ever opened.
    fn record_lost_thread(&mut self) {
        let Some(reason) = self.lost else { return };
        if let Some(region) = self.table.find_any_file_region().or(self.inherited) {
            region.record_lost_thread(OwnImage::from_linker().region_words, reason);
        } else if let Some(kept) = kept::keep_if_valid(&mut self.kept) {
            file::record_lost_thread(&kept.raw.descriptor, reason);
        }
    }

    fn record_unreported_losses(&mut self) {
        let unreported = if self.source == RegionSource::File { UNREPORTED_LOSSES.swap(0, SeqCst) } else { 0 };
        if unreported > 0
            && let Some(region) = self.table.find_any_file_region()
        {
            (0..unreported).for_each(|_| region.record_lost_thread(OwnImage::from_linker().region_words, LostReason::Other));
        }
    }

    fn acquire_file_region(&mut self, image: &OwnImage, over: Option<usize>) -> Result<Region, OutputFailure> {
        let RuntimeState { search, pattern, path, scratch, kept, process, .. } = self;
        let mut open = || file::open_raw_file(image, pattern, ActionIfFileMissing::Create, path, scratch);
        if let Some(kept) = kept::keep_if_valid(kept) {
            return region::acquire_from_file(&mut kept.raw, search, *process, over, image.region_words, open);
        }
        let mut raw = open()?;
        let region = region::acquire_from_file(&mut raw, search, *process, over, image.region_words, open);
        // A child of `vfork` has a descriptor table of its own, so it must not keep the file in the shared state. The file is kept even if
        // no region was acquired, in order to record losses.
        if system::process_id() == *process {
            *kept = KeptOpenFile::new(raw);
        }
        region
    }

    /// Acquires another region for a thread that already has one. Returns `None` if there is no raw file or an error occurs.
    fn add_region(&mut self) -> Option<usize> {
        let owner = self.current_owner();
        if self.source != RegionSource::File {
            return None;
        }
        let region = match self.acquire_file_region(&OwnImage::from_linker(), None) {
            Ok(region) => region,
            Err(failure) => {
                // The runtime tries again for each chunk, but reports only the first failure. The stream itself counts the lost events.
                if !IS_GROWTH_FAILURE_REPORTED.swap(true, SeqCst) {
                    text::print_failure(self.path.bytes(), &failure, &mut self.scratch);
                }
                return None;
            }
        };
        self.table.add(region, owner);
        Some(region.address)
    }

    /// Saves the frames of the calling thread's stream before `fork`.
    pub fn save_stream_frames(&mut self) {
        let bias = thread_bias();
        if bias != 0 {
            self.saved_frames = ShadowFrames::save(OwnImage::from_linker().template.wrapping_add(bias as usize));
        }
    }

    /// Discards the saved frames after `fork`, in the parent.
    pub fn discard_saved_stream_frames(&mut self) {
        self.saved_frames.take().into_iter().for_each(ShadowFrames::release);
    }

    /// Makes a child of `fork` count separately from its parent. The region of the forking thread keeps its address, because active
    /// functions hold its bias in a register. Returns the frames with which the child's stream must start, and the region's address.
    pub fn restart_in_child(&mut self) -> Option<(ShadowFrames, usize)> {
        let image = OwnImage::from_linker();
        self.process = system::process_id();
        fork_page::mark_fork_page_as_own();
        let bias = thread_bias();
        let current = if bias == 0 { 0 } else { image.template.wrapping_add(bias as usize) };
        let shared = image.shared_region();
        let parents = [current, shared].map(|address| self.table.file_region_at(address));
        self.table.remove(|address, _| address != current && address != shared, |region| region.unmap(image.region_words));
        self.table.remove(|_, _| true, drop);
        self.search.next = 0;
        self.reopen_file_in_fork_child(&image);
        let mut event = 0;
        let kept = self.saved_frames.take();
        let frames = if current == 0 { None } else { kept.or_else(|| ShadowFrames::save(current)) };
        // A thread without a region has no event counter.
        if self.source == RegionSource::File && current != 0 {
            match events::reopen_counter_after_fork() {
                Ok(renewed) => event = renewed,
                Err(failure) => self.source = self.disable_output(&failure),
            }
        }
        if current != 0
            && let Some(region) = self.replace_region(current, parents[0])
        {
            self.table.add(Region { event, ..region }, system::thread_id());
        }
        if shared != 0
            && let Some(region) = self.replace_region(shared, parents[1])
        {
            self.table.add(region, PINNED_REGION_OWNER);
        }
        self.map_sampling_switch();
        frames.map(|frames| (frames, current))
    }

    /// Maps the page of the raw file with the sampling switch over this image's switch. If that fails, the switch stays off, as it is
    /// initially.
    pub fn map_sampling_switch(&mut self) {
        let image = OwnImage::from_linker();
        if image.switch == 0 || self.source != RegionSource::File {
            return;
        }
        let Some(kept) = kept::keep_if_valid(&mut self.kept) else { return };
        if system::map_page_to_read(&kept.raw.descriptor, kept.raw.switch_offset, image.switch).is_err() {
            text::print_line(b"trodden: cannot map the sampling switch, so nothing is sampled in this process\n");
        }
    }

    /// Opens the raw file again in a child of `fork`, in order not to use the parent's open file description. If that fails, or opens a
    /// different file because the root folder has changed, uses the parent's description, with locks that belong to this process.
    fn reopen_file_in_fork_child(&mut self, image: &OwnImage) {
        let RuntimeState { source, pattern, path, scratch, kept, .. } = self;
        kept::keep_if_valid(kept);
        let Some(mut inherited) = kept.take() else { return };
        if *source != RegionSource::File {
            return;
        }
        let per_process = output::is_pattern_per_process(pattern);
        let missing = if per_process { ActionIfFileMissing::Create } else { ActionIfFileMissing::Fail };
        let own = file::open_raw_file(image, pattern, missing, path, scratch).ok().and_then(KeptOpenFile::new);
        *kept = own.filter(|own| per_process || own.is_same_file(&inherited));
        if kept.is_none() {
            inherited.raw.descriptor.lock_for_process();
            *kept = Some(inherited);
        }
    }

    /// Releases the regions of the calling thread and of threads that have ended, when the image ends. Keeps the regions of other threads,
    /// which may still be running at process exit.
    pub fn finish_image(&mut self) {
        if !self.is_running {
            return;
        }
        self.record_unreported_losses();
        let image = OwnImage::from_linker();
        let (process, bias) = (self.process, thread_bias());
        let current = if bias == 0 { 0 } else { image.template.wrapping_add(bias as usize) };
        set_thread_bias(0, 0);
        stream::end_thread_stream();
        events::close_thread_counter();
        let is_in_use = |address, owner| address != current && !is_without_owner(process, owner);
        // The kernel may still list a thread that was just joined, so wait a little. If a library is unloaded, a region that is not
        // released here is never released.
        if !image::is_program() {
            let mut attempts_left = 10;
            while attempts_left > 0 && self.table.has_entry(|address, owner| owner != PINNED_REGION_OWNER && is_in_use(address, owner)) {
                system::sleep_ms(1);
                attempts_left -= 1;
            }
        }
        let kept = kept::keep_if_valid(&mut self.kept);
        let raw = kept.map(|kept| &kept.raw);
        self.table.remove(
            |address, owner| !is_in_use(address, owner),
            |region| {
                events::close_counter(region.event);
                region.release(raw, process, image.region_words);
            },
        );
        if self.table.is_empty() {
            self.kept = None;
            self.search.next = 0;
            fork_page::remove_fork_page();
            self.is_running = false;
        }
    }
}
