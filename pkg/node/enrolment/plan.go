// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The modes of what is installed.
const (
	installedMode fs.FileMode = 0o644
	directoryMode fs.FileMode = 0o755
)

// plan returns what is to be done, from the surroundings. It changes nothing.
func (e *Enrolment) plan(ctx context.Context, s *surroundings) (*journal, error) {
	j := &journal{
		Phase: enrolling, Node: s.kubelet.Node, Kubeconfig: s.kubelet.Kubeconfig, KubeletUnit: s.kubelet.unit,
		Endpoint: e.options.Endpoint, RemoveState: !e.options.Host.exists(e.options.StateDir),
		NRI: e.options.NRI != nil, Group: e.options.Group, Owned: e.options.Owned,
	}
	if e.options.Mode == ModeNRI {
		j.Mode, j.Endpoint = ModeNRI, ""
	}
	if j.NRI {
		return j, nil
	}
	if !e.options.Host.exists(e.options.ConfigFile) {
		content, err := e.options.Kubecri.Configuration(s.kubelet)
		if err != nil {
			return nil, err
		}
		j.Installed = append(j.Installed, installed(e.options.ConfigFile, content))
	}
	// A unit that is there already is the administrator's.
	for _, name := range e.options.Mode.units() {
		unit, err := e.unit(ctx, name)
		if err != nil {
			return nil, err
		}
		if unit["LoadState"] != "loaded" {
			content, err := e.options.Kubecri.Unit(name)
			if err != nil {
				return nil, err
			}
			j.Installed = append(j.Installed, installed(filepath.Join(e.options.SystemdDir, name), content))
		}
		if name == serviceUnit {
			j.StartServices = unit["ActiveState"] != "active"
		}
	}
	for _, change := range j.Installed {
		j.Directories = append(j.Directories, e.missing(filepath.Dir(change.Path))...)
	}
	slices.Sort(j.Directories) // the outer ones first
	j.Directories = slices.Compact(j.Directories)
	if e.options.Mode == ModeNRI {
		return j, nil
	}
	for _, source := range s.kubelet.sources {
		change, err := e.redirect(source, e.options.Endpoint)
		if err != nil {
			return nil, err
		}
		j.Kubelet = append(j.Kubelet, change)
	}
	return j, nil
}

func installed(path string, content []byte) change {
	return change{Path: path, After: file{Exists: true, Mode: installedMode, Content: content}}
}

// redirect returns the change of a kubelet's file that makes the kubelet call the endpoint.
func (e *Enrolment) redirect(s source, endpoint string) (change, error) {
	before, err := e.options.Host.read(s.path)
	if err != nil {
		return change{}, err
	}
	if !before.Exists {
		return change{}, fmt.Errorf("%s: %w", s.path, fs.ErrNotExist)
	}
	after := before
	if after.Content, err = s.format.setEndpoint(before.Content, endpoint); err != nil {
		return change{}, fmt.Errorf("%s: %w", s.path, err)
	}
	return change{s.path, s.format, before, after}, nil
}

// missing returns the directories on the way to path that are not there, itself included.
func (e *Enrolment) missing(path string) []string {
	if e.options.Host.exists(path) {
		return nil
	}
	return append(e.missing(filepath.Dir(path)), path)
}

// makeDirectories makes the directories that were missing.
func (e *Enrolment) makeDirectories(j *journal) error {
	for _, path := range j.Directories {
		if err := os.Mkdir(e.options.Host.path(path), directoryMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// describe returns what each step of the plan does, for people.
func (e *Enrolment) describe(j *journal) []Step {
	label := Step{Name: "label", Actions: []string{"give node " + j.Node + " the label " + Label}}
	var first []Step
	if j.Group != "" {
		first = []Step{{Name: "group", Actions: []string{"give node " + j.Node + " the label " + GroupLabel}}}
	}
	if j.NRI {
		return append(first, label)
	}
	var services, kubelet Step
	services.Name, kubelet.Name = "services", "kubelet"
	for _, change := range j.Installed {
		services.Actions = append(services.Actions, "write "+change.Path)
	}
	if j.StartServices {
		services.Actions = append(services.Actions, "enable and start "+strings.Join(j.mode().units(), " and "))
	}
	cordon := Step{Name: "cordon", Actions: []string{"cordon node " + j.Node + " until the end"}}
	if j.mode() == ModeNRI {
		services.Actions = append(services.Actions, "wait until kubecri is registered with NRI")
		return append(first, cordon, services, label)
	}
	services.Actions = append(services.Actions, fmt.Sprintf("wait until the runtime answers at %s", j.Endpoint))
	for _, change := range j.Kubelet {
		kubelet.Actions = append(kubelet.Actions, fmt.Sprintf("in %s, replace the endpoint by %s", change.Path,
			j.Endpoint))
	}
	kubelet.Actions = append(kubelet.Actions, fmt.Sprintf("restart %s, and wait until node %s is ready", j.KubeletUnit,
		j.Node))
	return append(first, cordon, services, kubelet, label)
}
