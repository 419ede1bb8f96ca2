package inproc

import "google.golang.org/grpc/credentials"

// Addr is the address of both ends of every channel: there is only one process.
type Addr struct{}

// Network returns "inproc".
func (Addr) Network() string { return "inproc" }

// String returns "inproc".
func (Addr) String() string { return "inproc" }

// AuthInfo says only that the caller is in this process.
type AuthInfo struct{}

// AuthType returns "inproc".
func (AuthInfo) AuthType() string { return "inproc" }

// GetCommonAuthInfo reports the highest security level: nothing leaves the
// process. It lets per-call credentials that insist on it be used.
func (AuthInfo) GetCommonAuthInfo() credentials.CommonAuthInfo {
	return credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
}
