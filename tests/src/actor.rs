//! A process with a session of its own, told what to do line by line; to be killed and stopped.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(30);

/// A child process that ends with this value.
#[derive(Debug)]
pub struct Actor {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Where its TCP listener is, if it has one.
    pub tcp: Option<std::net::SocketAddr>,
}

impl Actor {
    /// Starts the program of actors, `env!("CARGO_BIN_EXE_actor")` in a test.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn(program: &str) -> Self {
        Self::spawn_with(program, &[], &[])
    }

    /// Starts a [`bystander`](crate::bystander) with `len` bytes.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn bystander(program: &str, len: usize) -> Self {
        Self::spawn_with(program, &[crate::bystander::NAME, &len.to_string()], &[])
    }

    /// The same, with variables of its own.
    fn spawn_with(program: &str, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(program);
        Self::begin(command.args(args), variables)
    }

    /// Starts one as another user, which only root can do.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn_as(program: &str, user: u32, variables: &[(&str, &str)]) -> Self {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(program);
        // Where that user may read.
        Self::begin(command.uid(user).gid(user).current_dir("/"), variables)
    }

    fn begin(command: &mut Command, variables: &[(&str, &str)]) -> Self {
        let mut child = command
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the actor was built");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, lines, tcp: None }
    }

    /// Starts an actor with a session; `settings` as its `start` command has them.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn session(program: &str, settings: &str) -> Self {
        Self::session_with(program, settings, &[])
    }

    /// The same, with variables of its own.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn session_with(program: &str, settings: &str, variables: &[(&str, &str)]) -> Self {
        let mut actor = Self::spawn_with(program, &[], variables);
        let answer = actor.request(&format!("start {settings}"));
        actor.tcp = answer.split_whitespace().next().and_then(|a| a.parse().ok());
        actor
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The address of its TCP listener.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn address(&self) -> hmc_std::Address {
        hmc_std::Address::Tcp(self.tcp.expect("it listens on TCP"))
    }

    /// Sends it a command, without waiting for the answer.
    ///
    /// # Panics
    /// When it is gone.
    pub fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("not dismissed");
        writeln!(stdin, "{line}").expect("the actor lives");
        stdin.flush().expect("the actor lives");
    }

    /// Its next answer: `Ok` with what it says, `Err` with the kind of its error and the text.
    ///
    /// # Errors
    /// What the actor's session answered.
    ///
    /// # Panics
    /// When none comes.
    pub fn answer(&mut self) -> Result<String, String> {
        self.answer_in(ANSWER)
    }

    /// The same, of something that may take longer.
    ///
    /// # Errors
    /// What the actor's session answered.
    ///
    /// # Panics
    /// When none comes.
    pub fn answer_in(&mut self, limit: Duration) -> Result<String, String> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Self::parse(&line),
            Err(RecvTimeoutError::Timeout) => panic!("the actor said nothing for {limit:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("the actor is gone"),
        }
    }

    /// Its next answer, if that is there.
    ///
    /// # Panics
    /// When it is gone.
    pub fn answer_now(&mut self) -> Option<Result<String, String>> {
        match self.lines.try_recv() {
            Ok(line) => Some(Self::parse(&line)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => panic!("the actor is gone"),
        }
    }

    fn parse(line: &str) -> Result<String, String> {
        match line.split_once(' ') {
            Some(("ok", rest)) => Ok(rest.to_owned()),
            Some(("err", rest)) => Err(rest.to_owned()),
            _ => panic!("the actor said `{line}`"),
        }
    }

    /// Sends it a command and returns its answer.
    ///
    /// # Errors
    /// What its session answered.
    pub fn try_request(&mut self, line: &str) -> Result<String, String> {
        self.send(line);
        self.answer()
    }

    /// Sends it a command that has to succeed.
    ///
    /// # Panics
    /// When it does not.
    pub fn request(&mut self, line: &str) -> String {
        self.try_request(line).unwrap_or_else(|e| panic!("`{line}` failed: {e}"))
    }

    /// Sends it a command in which it may be killed. Whether it was not.
    ///
    /// # Panics
    /// When it says nothing, and does not end either.
    pub fn survives(&mut self, line: &str) -> bool {
        let stdin = self.stdin.as_mut().expect("not dismissed");
        if writeln!(stdin, "{line}").and_then(|()| stdin.flush()).is_err() {
            return false;
        }
        match self.lines.recv_timeout(ANSWER) {
            Ok(_) => true,
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => panic!("the actor said nothing for {ANSWER:?}"),
        }
    }

    fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.child.id()).expect("a process number");
        // SAFETY: kill(2) takes numbers only. The child was not waited for (only `kill` and `drop`
        // do that, and they consume it or come last), so the number still names it.
        let r = unsafe { libc::kill(pid, signal) };
        assert_eq!(r, 0, "signal {signal} was not sent");
    }

    /// SIGSTOP; returns when it has stopped.
    ///
    /// # Panics
    /// When it does not stop.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let path = format!("/proc/{}/stat", self.pid());
        super::env::until("the actor has stopped", Duration::from_secs(10), || {
            let stat = std::fs::read_to_string(&path).ok()?;
            let (_, rest) = stat.rsplit_once(") ")?;
            rest.starts_with('T').then_some(())
        });
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    /// SIGKILL, without waiting: it stays a zombie until this value goes. Says when.
    #[must_use]
    pub fn kill(&self) -> Instant {
        let now = Instant::now();
        self.signal(libc::SIGKILL);
        now
    }

    /// Whether its process has ended.
    ///
    /// # Panics
    /// When the system does not know it.
    #[must_use]
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Closes its standard input, which ends it in order, and gives its exit status.
    ///
    /// # Panics
    /// When it does not end.
    pub fn dismiss(mut self) -> std::process::ExitStatus {
        self.stdin = None;
        super::env::until("the actor ends", Duration::from_secs(20), || {
            self.child.try_wait().expect("a child")
        })
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // By its own handle: std never signals a child that was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
