// Package process starts, feeds, signals and reaps users' processes; nothing else in this repository does.
//
// A [Supervisor] starts processes from a [Spec]. A [Process] has two streams of output, or one if it has a terminal,
// which flow straight into its event log, and perhaps an input. It moves through the states starting, running, exited
// and closed, in this order, and never back:
//
//   - running: the program was executed;
//   - exited: it ended and was reaped; its [ExitRecord] is known. The log's exited event may still wait: it follows
//     every byte that was readable when the process exited, and those bytes may wait for a slow owner;
//   - closed: every stream is at its end, whatever was left of the process was killed, and the log's last event was
//     appended. Descendants that hold a stream open put this off.
//
// # Identity
//
// Signals go through pidfds, those to the process group through the one that clone returned, so that no signal can meet
// a process that reused a number. A leader that exited stays an unreaped zombie until the process is closed, which
// reserves its number as that of a group and a session. On kernels that cannot signal a group through a pidfd (before
// 6.9) that is what makes it safe to signal the group by its number. Other processes are opened, compared with what was
// seen (the number and the time of the fork), and only then signalled.
//
// # Killing
//
// Whoever ends a process ends everything that descends from it: Terminate, timeouts, the close of the process unless
// Spec.LeaveDescendants, and the close of the Supervisor. A sweep does it. It lists all processes, finds the descendants,
// stops those it has not met, and does so again until there are no new ones; then it kills all of them, with the process
// group and the control group, and begins anew until there is nobody. One goroutine, of the family, takes the steps of
// all sweeps, so that a thousand of them list the processes as often as one.
//
// These are certainly descendants: those in the session that the process was started in, the children of descendants,
// those in a session that a descendant began, those in its control group, and whoever was one when we last looked. An
// orphan that has called setsid is none of these. It goes to init and is lost, unless there is a control group that it
// has not left. With Config.AdoptOrphans it becomes a child of this program instead. It is then attributed by its
// control group or by the pipes and terminal it was given. If that says nothing, it can descend from any process that
// was started before it: it is killed when all of those are being killed or have closed, and until then none of them is
// verified to have no descendants. As init of a pid namespace this program is given orphans that descend from none of its
// processes, too: then only what says whose they are counts.
//
// So [TerminateResult].Verified is set only with AdoptOrphans, when /proc hides nobody, and when no descendant and no such
// orphan was left. A list of all processes misses those who are forked while it is made; but of a family that lives on
// in them somebody has then ended, and is a zombie that we have not reaped: as long as there is one, it is looked again.
// So it is if the process itself had not ended before the list was begun.
// A control group alone is no proof: who has this program's rights can move to another one. A descendant that does this to be
// taken for that of another process, or that gets hold of another's pipe, is taken for it, and dies with that one. What
// somebody else starts at a descendant's request (cron, systemd, a container engine) is no descendant.
//
// None of this helps when the program itself is killed. [Guard] puts a parent above it for that, which does nothing else.
//
// # Limits
//
// A process with resource limits or a nice value is started traced by the thread that forks it. The kernel stops it
// when it has executed its program; its limits are set from outside, and it is let go before its first instruction.
//
// # Locks
//
// The order is stream.mu, Process.mu, then one of the event log's own, Supervisor.mu, family.mu and Cgroups.mu; and
// stdin.mu, Supervisor.mu.
package process
