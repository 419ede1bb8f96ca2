// Package syslimit finds what the system lets this program have, of memory and of
// processes, and keeps threads for it while there are some to be had.
package syslimit
