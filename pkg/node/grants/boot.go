// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// bootMark is the name of a file that lives as long as its directory, which is in memory.
	bootMark = "boot"
	// kernelBoot has the kernel's name for this boot.
	kernelBoot = "/proc/sys/kernel/random/boot_id"
)

// Boot returns a name for this boot of the machine, which no other boot has, and which all
// processes get that use the directory. It is made of the kernel's name and of a mark, a file in
// the directory. The directory, the file, or both are made if they do not exist.
//
// Where the directory is in memory, as those below /run are, the mark goes with all else that
// plugins left there. That alone separates the boots of a machine without a kernel of its own, such
// as a container; where the directory is on a disk, the kernel's name does. Without the mark, it
// looks like a new boot.
func Boot(directory string) (string, error) {
	kernel, err := os.ReadFile(kernelBoot)
	if err != nil {
		return "", fmt.Errorf("identify this boot of the machine: %w", err)
	}
	mark, err := readMark(directory)
	if err != nil {
		return "", fmt.Errorf("identify this boot of the machine by a file in %s: %w", directory, err)
	}
	sum := sha256.Sum256(append(kernel, mark...))
	return fmt.Sprintf("%x", sum[:16]), nil
}

// readMark returns the content of the mark in the directory, and makes it if it does not exist.
func readMark(directory string) ([]byte, error) {
	path := filepath.Join(directory, bootMark)
	mark, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return mark, err
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, err
	}
	if err := makeMark(directory, path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// makeMark puts a mark at path, complete from its first moment, unless another process was faster.
func makeMark(directory, path string) (err error) {
	file, err := os.CreateTemp(directory, bootMark+".*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(file.Name())) }()
	_, err = file.WriteString(rand.Text() + "\n")
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
