// Package syslimit reads the system's limits of memory and processes for this program, and creates
// threads in advance while the limits permit it. It also releases pages that only the start of a
// program needs.
package syslimit
