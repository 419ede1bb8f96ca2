// Package syslimit reads the system's limits of memory and processes for this program, and creates
// threads in advance while the limits permit it.
package syslimit
