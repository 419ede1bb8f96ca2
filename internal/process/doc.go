// Package process starts, feeds, signals and reaps users' processes; nothing else in this repository does.
//
// A [Supervisor] starts processes from a [Spec]. A [Process] has two streams of output, or one if it has a terminal,
// which flow straight into its event log, and perhaps an input. It moves through the states starting, running, exited
// and closed, in this order, and never back:
//
//   - running: the program was executed;
//   - exited: it ended and was reaped; its [ExitRecord] is known. The log's exited event may still wait: it follows
//     every byte that was readable when the process exited, and those bytes may wait for a slow owner;
//   - closed: every stream is at its end, and the log's last event was appended. Descendants that hold a stream open
//     put this off.
//
// # Identity
//
// Signals go through the pidfd that clone returned, also those to the process group, so that no signal can meet a
// process that reused a number. On kernels that cannot signal a group through a pidfd (before 6.9) the leader stays
// an unreaped zombie until it is closed, which reserves the number just as well.
//
// # Locks
//
// The order is stream.mu, Process.mu, then the event log's own or Supervisor.mu; and stdin.mu, Supervisor.mu.
package process
