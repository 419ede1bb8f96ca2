// Package process starts, feeds, signals and reaps the processes of clients. No other package of
// this repository does.
//
// A [Supervisor] starts processes from a [Spec]. A [Process] has two output streams, or one if it
// has a terminal, which are read straight into its event log, and optionally an input. Its state
// moves through starting, running, exited and closed, in this order, and never back:
//
//   - running: the program was executed;
//   - exited: the process has ended and its [ExitRecord] is known. The exited event of the log
//     may come later: it follows every byte that was readable at the exit, and those bytes may
//     wait for a slow owner;
//   - closed: every stream has ended, the remaining descendants were killed, and the last event
//     of the log was appended. A descendant that holds a stream open delays this state.
//
// # Identity
//
// Signals are sent through pidfds, those to the process group through the pidfd that clone
// returned, so that no signal can reach a process that reuses a PID. The leader stays an unreaped
// zombie until the process is closed, which reserves its PID as the ID of a process group and a
// session. On kernels that cannot signal a group through a pidfd (before 6.9) this makes it safe
// to signal the group by its ID. Any other process is opened, compared with what the scan saw
// (PID and start time), and only then signalled.
//
// # Killing
//
// Ending a process ends its whole process tree. This applies to Terminate, to timeouts, to the
// close of the process unless Spec.LeaveDescendants is set, and to the close of the Supervisor.
// The work is done by a killJob: it lists all processes, finds the descendants, stops those that
// are new, and repeats this until there are no new ones. Then it kills all of them, with the
// process group and the control group, and starts again until no process is left. One goroutine,
// that of the processTracker, runs the steps of all jobs, so that a thousand jobs list the
// processes as often as one.
//
// A process is certainly a descendant if it is in the session that the process was started in, if
// it is a child of a descendant, if it is in a session that a descendant created, if it is in the
// control group, or if it was a descendant in the previous scan. An orphan that has called setsid
// is none of these. Without Config.AdoptOrphans it is reparented to init and lost, unless it is
// still in the control group. With AdoptOrphans it becomes a child of this program. It is then
// attributed by its control group, or by the pipes and the terminal that it holds. Without such
// evidence it may descend from any process that was started before it: it is killed when all of
// those are being killed or have closed, and until then the end of none of them is verified. If
// this program is the init of a PID namespace it also adopts orphans of other programs; then an
// orphan without evidence is never killed.
//
// So [TerminateResult].Verified is set only with AdoptOrphans, if /proc shows all processes, and
// if no descendant and no such orphan is left. A scan misses processes that are forked while it
// runs. But if a tree survives in such processes, one of its members has ended and is a zombie
// that this program has not reaped. While there is such a zombie, or if the process itself had not
// ended before the scan began, the job scans again. The control group alone proves nothing,
// because a process with the rights of this program can move to another one. A descendant that
// does so, or that obtains the pipe of another process, is attributed to that process and killed
// with it. A program that another service (cron, systemd, a container engine) starts at the
// request of a descendant is not a descendant.
//
// None of this works once this program itself is killed. Package guardian runs it below a parent
// process that kills what is left in that case.
//
// # Replacing the program
//
// [Supervisor.Freeze] brings the goroutines of all processes to an end between two operations: a read
// and its Commit, two writes of input, two steps of a kill job. Deadlines of the files interrupt them;
// descriptors stay as they are. Then it locks the processes, so that timers and callers wait, and
// returns their state. [Supervisor.Thaw] undoes this. [Restore] goes on in the program that has
// replaced this one by execve, which has the same PID, so that children stay children: an exit that
// was not noticed before is noticed then.
//
// # Locks
//
// Freeze locks all processes at once, in any order; nothing else locks two.
// The lock order is stream.mu, then Process.mu, then one of: a lock of the event log,
// tasks.mu, rootTable.mu, the lock of a cgroup.Pool. stdin.mu comes before tasks.mu.
package process
