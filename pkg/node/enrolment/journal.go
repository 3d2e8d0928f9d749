// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/kubedevice/kubedevice/pkg/documents"
	"github.com/kubedevice/kubedevice/pkg/node/statefile"
)

// phase is how far an enrolment has come, as the journal writes it; see state.
type phase string

const (
	phaseEnrolling phase = "enrolling" // Enrol goes on; Leave goes back
	phaseEnrolled  phase = "enrolled"
	phaseLeaving   phase = "leaving" // Leave goes on; an enrolment that failed is one, too
)

// journal is what is to be done, and what was there before. It is on disk before anything else is
// changed, and from then on all that is done follows from it. Its state follows from the phase and
// the booleans, which stay as previous releases wrote them.
type journal struct {
	Phase phase `json:"phase"`
	// Mode is empty for ModeCRI, as releases wrote it that knew no other.
	Mode        Mode   `json:"mode,omitempty"`
	Node        string `json:"node"`
	Kubeconfig  string `json:"kubeconfig"`
	KubeletUnit string `json:"kubeletUnit"`
	Endpoint    string `json:"endpoint"` // kubecri's
	// Directories are those that have to be made, the outer ones first.
	Directories []string `json:"directories,omitempty"`
	// Installed are files of kubecri that were not there, Kubelet those of the kubelet.
	Installed []change `json:"installed,omitempty"`
	Kubelet   []change `json:"kubelet"`
	// RemoveState says that kubecri's state directory was not there.
	RemoveState bool `json:"removeState,omitempty"`
	// StartServices says that kubecri did not run.
	StartServices bool `json:"startServices,omitempty"`
	// Cordoned says that the node was schedulable before, and is not now.
	Cordoned bool `json:"cordoned,omitempty"`
	// Repair says that the node was enrolled before, and only the endpoint is set again.
	Repair bool `json:"repair,omitempty"`
	// Unwritten says that the repair has not written to files of the kubelet yet.
	Unwritten bool `json:"unwritten,omitempty"`
	// Switched says that the kubelet may run with kubecri's endpoint.
	Switched bool `json:"switched,omitempty"`
	// NRI says that kubecri is an NRI plugin, and that the kubelet is none of its business.
	NRI bool `json:"nri,omitempty"`
	// Group and Owned are those of the options.
	Group string   `json:"group,omitempty"`
	Owned []string `json:"owned,omitempty"`
}

// change is a file as it was and as it is to be.
type change struct {
	Path   string `json:"path"`
	Format format `json:"format,omitempty"` // of a file of the kubelet
	Before file   `json:"before"`
	After  file   `json:"after"`
}

// mode returns the mode in which the node was enrolled.
func (j *journal) mode() Mode { return cmp.Or(j.Mode, ModeCRI) }

func (e *Enrolment) journalFile() *statefile.File {
	return &statefile.File{Path: e.options.Host.path(e.options.Journal), Kind: "enrolment"}
}

// load returns the journal, or nil if there is none.
func (e *Enrolment) load() (*journal, error) {
	j := &journal{}
	err := e.journalFile().Read(func(body []byte) error {
		if err := json.Unmarshal(body, j); err != nil {
			return err
		}
		if j.Phase != phaseEnrolling && j.Phase != phaseEnrolled && j.Phase != phaseLeaving {
			return fmt.Errorf("it is in the phase %q", j.Phase)
		}
		if j.mode() != ModeCRI && j.mode() != ModeNRI {
			return fmt.Errorf("it is of the mode %q", j.Mode)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal of the enrolment: %w; restore the file from a copy, or take kubecri away by "+
			"hand, as "+documents.URL+"deploy/install.md says", err)
	}
	return j, nil
}

func (e *Enrolment) save(j *journal) error {
	e.options.Host.noteChange(e.options.Journal)
	if err := e.journalFile().Save(j); err != nil {
		return fmt.Errorf("journal of the enrolment: %w", err)
	}
	return nil
}

// forget removes the journal, last of all.
func (e *Enrolment) forget() error {
	path := e.journalFile().Path
	for _, name := range []string{path + ".spare", path} {
		e.options.Host.noteChange(name)
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// errBusy: another process enrols this node, or takes it back.
var errBusy = errors.New("another kubecri enrol or leave runs on this node: wait for its end")

// lockPath is on a file system that every machine has, and that lives no longer than its processes.
const lockPath = "/run/kubedevice-enrolment.lock"

// lockJournal keeps other processes from the journal until release is called, which leaves no file.
func (e *Enrolment) lockJournal() (release func(), err error) {
	path := e.options.Host.path(lockPath)
	for {
		lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			lock.Close() //nolint:errcheck // nothing is written to a lock
			if errors.Is(err, unix.EWOULDBLOCK) {
				err = errBusy
			}
			return nil, err
		}
		// Its previous holder may have removed it since it was opened.
		held, err := lock.Stat()
		if now, lost := os.Stat(path); err == nil && lost == nil && os.SameFile(held, now) {
			return func() {
				_ = os.Remove(path) // one that stays does no harm
				lock.Close()        //nolint:errcheck // nothing is written to a lock
			}, nil
		}
		lock.Close() //nolint:errcheck // nothing is written to a lock
		if err != nil {
			return nil, err
		}
	}
}
