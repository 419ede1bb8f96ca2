package jsonrpc

import "bytes"

// nameStack knows the names of the members of the objects that are being read.
type nameStack struct {
	few [][]byte // of the objects around, from the outermost
}

// objectNames are the names of one object: few in the stack, or many in a set.
type objectNames struct {
	base int
	many map[string]struct{}
}

// fewNames is up to how many names are compared one by one.
const fewNames = 16

func (st *nameStack) open() objectNames { return objectNames{base: len(st.few)} }

func (st *nameStack) close(o objectNames) { st.few = st.few[:o.base] }

// add remembers a name, and reports whether it is new to the object.
func (st *nameStack) add(o *objectNames, name []byte) bool {
	if o.many == nil {
		own := st.few[o.base:]
		for _, known := range own {
			if bytes.Equal(known, name) {
				return false
			}
		}
		if len(own) < fewNames {
			st.few = append(st.few, name)
			return true
		}
		o.many = make(map[string]struct{}, 2*fewNames)
		for _, known := range own {
			o.many[string(known)] = struct{}{}
		}
	}
	before := len(o.many)
	o.many[string(name)] = struct{}{}
	return len(o.many) > before
}
