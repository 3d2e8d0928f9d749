// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// load reads the faults of an earlier start in the same boot.
func (h *health) load() error {
	if h.file == "" {
		return nil
	}
	content, err := os.ReadFile(h.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	read := map[string]*fault{}
	if err := json.Unmarshal(content, &read); err != nil {
		return fmt.Errorf("%s: %w", h.file, err)
	}
	for uuid, f := range read {
		if f != nil && h.counts.includes(f.XID) {
			h.faults[uuid] = f
		}
	}
	if len(h.faults) < len(read) {
		return h.save() // what counts no more is forgotten, also when it counts again
	}
	return nil
}

// save replaces the file with the faults that there are, whole at any moment.
func (h *health) save() error {
	if h.file == "" {
		return nil
	}
	content, err := json.Marshal(h.faults)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(h.file), 0o700); err != nil {
		return err
	}
	next := h.file + ".next"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return err
	}
	return os.Rename(next, h.file)
}
