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
	// bootMark is the name of the file that lives as long as the folder that it is in, which is in memory.
	bootMark = "boot"
	// kernelBoot is where Linux tells which boot this is.
	kernelBoot = "/proc/sys/kernel/random/boot_id"
)

// Boot returns a name for the present boot of the machine, which no other boot has. It is made of the kernel's own and of a
// mark, a file in the folder, which is made if it is not there: where the folder is in memory, as those below /run are, the
// mark goes when everything else goes that plugins left there. It is all that tells the boots of a machine without a kernel of
// its own, such as a container; the kernel's name tells them where the folder is on a disk. All processes that use the folder
// are told the same.
//
// A mark that somebody removes makes this a new boot, as far as anybody can see.
func Boot(folder string) (string, error) {
	kernel, err := os.ReadFile(kernelBoot)
	if err != nil {
		return "", fmt.Errorf("tell this boot of the machine from others: %w", err)
	}
	mark, err := readMark(folder)
	if err != nil {
		return "", fmt.Errorf("tell this boot of the machine from others by a file in %s: %w", folder, err)
	}
	sum := sha256.Sum256(append(kernel, mark...))
	return fmt.Sprintf("%x", sum[:16]), nil
}

// readMark returns what the mark in the folder says, and makes folder and mark before if they are not there.
func readMark(folder string) ([]byte, error) {
	path := filepath.Join(folder, bootMark)
	mark, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return mark, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	if err := makeMark(folder, path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// makeMark puts a mark at path, complete from its first moment, unless another process was faster.
func makeMark(folder, path string) (err error) {
	file, err := os.CreateTemp(folder, bootMark+".*")
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
