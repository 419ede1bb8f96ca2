// Package filehelper keeps helper processes: programs of ours that are confined and serve calls about files to the server
// that started them, over gRPC on the socket pair that is their standard input and output.
//
// A [Pool] bounds all helpers of a server. A [Set] of it has those of one session, one for each confinement. Who uses a
// helper has a [Lease] of it; one that nobody uses stays for a while, and gives way when there are too many.
package filehelper
