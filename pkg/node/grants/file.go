// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// The file is one line that says how to read the rest, and the grants as JSON:
//
//	kubedevice-grants v1 sha256:<hexadecimal sum of the rest>
//
// Spaces fill it up to whole blocks, so that one more grant seldom changes its size; see replaceFile.
//
// A release may add JSON fields under the same version: the one before it ignores them. A release that finds another version
// treats the file as a damaged one: it is set aside, and the record made anew from the runtime.
const (
	magic        = "kubedevice-grants"
	version      = "v1"
	headerFormat = magic + " " + version + " sha256:%x\n"
	headerBytes  = len(magic) + 1 + len(version) + len(" sha256:") + 2*sha256.Size + len("\n")
	block        = 4 << 10
)

// ErrDamaged is wrapped by the error of a file that is there and is not what was written, as far as this release can tell: the
// version of a file that a later one wrote may be unknown.
var ErrDamaged = errors.New("the record is damaged")

// content is the JSON part of the file.
type content struct {
	Grants []Grant `json:"grants"`
}

// Read returns the grants in the file, sorted by pod. The error of a file that does not exist is fs.ErrNotExist, that of a
// damaged one ErrDamaged.
func Read(path string) ([]Grant, error) {
	for try := 1; ; try++ {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("record of grants: %w", err)
		}
		grants, err := decode(raw)
		if err == nil {
			return grants, nil
		}
		// A file that was replaced twice while it was read looks like a damaged one; see replaceFile.
		if try == readTries {
			return nil, fmt.Errorf("record of grants %s: %w: %w", path, ErrDamaged, err)
		}
	}
}

const readTries = 3

func encode(grants []Grant) ([]byte, error) {
	body, err := json.MarshalIndent(content{grants}, "", " ")
	if err != nil {
		return nil, err
	}
	size := (headerBytes + len(body) + block - 1) / block * block
	body = append(body, bytes.Repeat([]byte(" "), size-headerBytes-len(body))...)
	return append(fmt.Appendf(nil, headerFormat, sha256.Sum256(body)), body...), nil
}

func decode(raw []byte) ([]Grant, error) {
	header, body, _ := bytes.Cut(raw, []byte("\n"))
	if fields := bytes.Fields(header); len(fields) > 1 && string(fields[0]) == magic && string(fields[1]) != version {
		return nil, fmt.Errorf("it is of version %.20q, which this kubecri does not know; a later one may have written it", fields[1])
	}
	if want := fmt.Sprintf(headerFormat, sha256.Sum256(body)); string(header)+"\n" != want {
		return nil, fmt.Errorf("its first line is %.120q, which does not fit the rest", header)
	}
	var c content
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, g := range c.Grants {
		if g.PodUID == "" || g.Decision == nil || seen[g.PodUID] {
			return nil, fmt.Errorf("grant of pod %s (UID %q) is incomplete or doubled", g.Pod(), g.PodUID)
		}
		seen[g.PodUID] = true
		// The same limits as for the annotation that it came from.
		if _, err := deviceinfo.EncodePod(g.Decision); err != nil {
			return nil, fmt.Errorf("grant of pod %s: %w", g.Pod(), err)
		}
	}
	return c.Grants, nil
}

// write replaces the file in one step. When it returns, the new content survives a power failure.
func write(path string, grants []Grant) error {
	raw, err := encode(grants)
	if err == nil {
		err = replaceFile(path, raw)
	}
	if err != nil {
		return fmt.Errorf("write the record of grants, without which no device is given out: %w", err)
	}
	return nil
}
