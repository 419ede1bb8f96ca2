package sockdiag

import (
	"bufio"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// procAttempts is how often a table is read: sockets that come and go while it is
// can hide another one.
const procAttempts = 3

// readProc looks for the socket that t names in the tables of directory, which is
// /proc/net. They do not have the control group.
func readProc(directory string, t tuple) (found record, err error) {
	for range procAttempts {
		if found, err = readTables(directory, t); !errors.Is(err, ErrNoOwner) {
			break
		}
	}
	return found, err
}

func readTables(directory string, t tuple) (record, error) {
	// A socket of IPv6 can have mapped addresses of IPv4.
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open(filepath.Join(directory, name))
		if errors.Is(err, fs.ErrNotExist) && name == "tcp6" {
			break // the kernel has no IPv6
		}
		if err != nil {
			return record{}, err
		}
		found, err := findIn(f, t)
		_ = f.Close()
		if !errors.Is(err, ErrNoOwner) {
			return found, err
		}
	}
	return record{}, ErrNoOwner
}

// findIn looks for the socket that t names in one table. The error is
// [ErrNoOwner] if it is not there.
func findIn(table io.Reader, t tuple) (record, error) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		if r, ok := parseLine(lines.Text()); ok && r.tuple == t {
			return r, nil
		}
	}
	if err := lines.Err(); err != nil {
		return record{}, err
	}
	return record{}, ErrNoOwner
}

// The fields of a line of such a table.
const (
	fieldLocal = 1 + iota
	fieldRemote
	fieldState
	fieldQueues
	fieldTimer
	fieldRetransmits
	fieldUID
	fieldTimeout
	fieldInode
	fieldCount
)

// parseLine reads one line; the title is none.
func parseLine(line string) (r record, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < fieldCount {
		return record{}, false
	}
	var state, uid, inode uint64
	for _, field := range []struct {
		text string
		base int
		bits int
		to   *uint64
	}{{fields[fieldState], 16, 8, &state}, {fields[fieldUID], 10, 32, &uid}, {fields[fieldInode], 10, 32, &inode}} {
		var err error
		if *field.to, err = strconv.ParseUint(field.text, field.base, field.bits); err != nil {
			return record{}, false
		}
	}
	var localOK, remoteOK bool
	r.local, localOK = parseHexAddrPort(fields[fieldLocal])
	r.remote, remoteOK = parseHexAddrPort(fields[fieldRemote])
	r.state, r.UID, r.Inode = byte(state), uint32(uid), uint32(inode)
	return r, localOK && remoteOK
}

// parseHexAddrPort reads "0100007F:1D08": words of 32 bits in the order of this
// machine, and the port as a number.
func parseHexAddrPort(text string) (netip.AddrPort, bool) {
	addrText, portText, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(addrText)
	port, portErr := strconv.ParseUint(portText, 16, 16)
	if err != nil || portErr != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, false
	}
	swapped := make([]byte, 0, len(raw))
	for word := 0; word < len(raw); word += 4 {
		swapped = native.AppendUint32(swapped, uint32(raw[word])<<24|uint32(raw[word+1])<<16|uint32(raw[word+2])<<8|uint32(raw[word+3]))
	}
	addr, _ := netip.AddrFromSlice(swapped)
	return unmapped(netip.AddrPortFrom(addr, uint16(port))), true
}
