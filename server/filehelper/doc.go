// Package filehelper keeps helper processes: programs of ours that are confined and serve calls about files to the server
// that started them. Streams are gRPC's, on the socket pair that is their standard output; calls of one message each way
// are frames on the one that is their standard input.
//
// A [Pool] bounds all helpers of a server. A [Set] of it has those of one session, one for each confinement. Who uses a
// helper has a [Lease] of it; one that nobody uses stays for a while, and gives way when there are too many.
package filehelper
