// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// releaseFile has the plugin nvidiagpu let go of NVIDIA's driver while it is there. The plugin,
// which this package does not import, names it, too.
const releaseFile = "/run/kubedevice/nvidiagpu-release"

// driverTimeout is how long kubecri may take to let go of the driver, or to take it up. Its plugin
// looks once a second.
const driverTimeout = 30 * time.Second

// driver is the driver of a vendor on this machine.
type driver struct {
	file string // releaseFile
	proc fs.FS  // the machine's /proc, with links
	out  io.Writer
}

// driverCommand has kubecri let go of a driver while it is replaced.
func driverCommand() *cobra.Command {
	timeout := driverTimeout
	command := &cobra.Command{
		Use:   "driver",
		Short: "Have kubecri let go of NVIDIA's driver while it is replaced, and take it up again",
		Args:  cobra.NoArgs,
	}
	add := func(use, short string, run func(*driver, context.Context) error) {
		sub := &cobra.Command{
			Use: use, Short: short, Args: cobra.NoArgs,
			RunE: func(command *cobra.Command, _ []string) error {
				ctx, cancel := context.WithTimeout(command.Context(), timeout)
				defer cancel()
				return run(&driver{releaseFile, os.DirFS("/proc"), command.OutOrStdout()}, ctx)
			},
		}
		sub.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait for kubecri")
		command.AddCommand(sub)
	}
	add("release", "Have kubecri close the driver's files; its GPUs are unhealthy from then on", (*driver).release)
	add("take", "Have kubecri use the driver again", (*driver).take)
	return command
}

// release returns when no kubecri has files of the driver open.
func (d *driver) release(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(d.file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(d.file, []byte("kubecri driver release, "+time.Now().UTC().Format(time.RFC3339)+"\n"),
		0o600); err != nil {
		return err
	}
	users, err := d.await(ctx, func(users []user) bool { return !slices.ContainsFunc(users, user.isKubecri) })
	if err != nil {
		return err
	}
	var others []string
	for _, u := range users {
		if u.isKubecri() {
			return fmt.Errorf("kubecri (PID %d) still has %s open: see its log; %s stays until \"kubecri driver take\"",
				u.pid, u.file, d.file)
		}
		others = append(others, fmt.Sprintf("%s (PID %d)", u.command, u.pid))
	}
	fmt.Fprintf(d.out, "kubecri does not use the driver until \"kubecri driver take\". The node's GPUs are unhealthy "+
		"meanwhile: DriverReleased.\n")
	if len(others) > 0 {
		fmt.Fprintf(d.out, "The driver cannot be unloaded before these end, which have its files open: %s\n",
			strings.Join(others, ", "))
	}
	return nil
}

// take returns when a kubecri has files of the driver open.
func (d *driver) take(ctx context.Context) error {
	if err := os.Remove(d.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	users, err := d.await(ctx, func(users []user) bool { return slices.ContainsFunc(users, user.isKubecri) })
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(users, user.isKubecri) {
		return errors.New("kubecri may use the driver again, and has not opened it yet: it tries every second; see " +
			"its log for the reason")
	}
	fmt.Fprintln(d.out, "kubecri uses the driver again.")
	return nil
}

// await returns the processes that have files of the driver open, when they are as done says, or
// when ctx is.
func (d *driver) await(ctx context.Context, done func([]user) bool) ([]user, error) {
	for {
		users, err := d.users()
		if err != nil || done(users) {
			return users, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return users, nil
		}
	}
}

// user is a process that has a file of the driver open.
type user struct {
	pid           int
	command, file string
}

// isKubecri reports whether the process is kubecri.
func (u user) isKubecri() bool { return u.command == "kubecri" }

// users returns the processes that have files of the driver open, by PID. A process that ends
// meanwhile is none.
func (d *driver) users() (users []user, err error) {
	entries, err := fs.ReadDir(d.proc, ".")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		files, _ := fs.ReadDir(d.proc, entry.Name()+"/fd")
		for _, file := range files {
			opened, err := fs.ReadLink(d.proc, entry.Name()+"/fd/"+file.Name())
			if err != nil || !strings.HasPrefix(opened, "/dev/nvidia") {
				continue
			}
			command, _ := fs.ReadFile(d.proc, entry.Name()+"/comm")
			users = append(users, user{pid, strings.TrimSpace(string(command)), opened})
			break
		}
	}
	slices.SortFunc(users, func(a, b user) int { return a.pid - b.pid })
	return users, nil
}
