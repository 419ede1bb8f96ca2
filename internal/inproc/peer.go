package inproc

import "google.golang.org/grpc/credentials"

// Addr is the address of both ends of every channel.
type Addr struct{}

// Network returns "inproc".
func (Addr) Network() string { return "inproc" }

// String returns "inproc".
func (Addr) String() string { return "inproc" }

// AuthInfo identifies a caller in this process.
type AuthInfo struct{}

// AuthType returns "inproc".
func (AuthInfo) AuthType() string { return "inproc" }

// GetCommonAuthInfo returns the highest security level, since nothing leaves the
// process. It permits per-call credentials that require it.
func (AuthInfo) GetCommonAuthInfo() credentials.CommonAuthInfo {
	return credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
}
