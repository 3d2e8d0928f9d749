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

	"k8s.io/client-go/kubernetes"

	"github.com/kubedevice/kubedevice/pkg/documents"
)

// The modes of what is installed.
const (
	installedMode fs.FileMode = 0o644
	directoryMode fs.FileMode = 0o755
)

// units are those of systemd that start kubecri, and what is the same for every kubecri that they
// start.
type units struct {
	*Enrolment
	names []string
}

// kubeconfigAdvice implements installation.
func (units) kubeconfigAdvice() string { return "correct --kubeconfig of the kubelet, which names it" }

// disturbsPods implements installation.
func (units) disturbsPods() bool { return true }

// commonFacts returns the facts of every installation with units. own are those that differ.
func (u units) commonFacts(ctx context.Context, s *nodeState, own ownFacts) []Fact {
	facts := []Fact{u.nodeFact(ctx, s), u.endpointFact(s, own.endpoint), own.runtime, u.cdiFact(ctx, s)}
	facts = append(facts, own.nri...)
	facts = append(facts, u.clockFact(ctx, s), u.programFact(ctx))
	facts = append(facts, u.pluginFacts(ctx, s)...)
	facts = append(facts, u.managerFacts(ctx, s)...)
	return append(facts, own.holders, u.schedulerFact(ctx), u.policiesFact(ctx), u.diskFact())
}

// ownFacts are the facts of one installation with units.
type ownFacts struct {
	endpoint, runtime, holders Fact
	nri                        []Fact
}

// endpointFact returns what was found about the kubelet's endpoint with the risk that it has.
func (u units) endpointFact(s *nodeState, found Fact) Fact {
	switch {
	case sameEndpoint(s.kubelet.Endpoint, u.options.Endpoint):
		return found.blocks("the kubelet calls kubecri already; somebody set that up by hand, and takes it away by " +
			"hand (" + documents.URL + "deploy/install.md)")
	case u.options.Upstream != "" && !sameEndpoint(u.options.Upstream, s.kubelet.Endpoint):
		return found.blocks(fmt.Sprintf("%s says criUpstream: %s, which must be the endpoint that the kubelet calls "+
			"now", u.options.ConfigFile, u.options.Upstream))
	}
	return found
}

// runtimeFact is about the container runtime. Its version is empty if it does not answer.
func (u units) runtimeFact(ctx context.Context, s *nodeState) (found Fact, version string) {
	version, err := u.options.Runtimes.Version(ctx, s.kubelet.Endpoint)
	if err != nil {
		return unreadable("runtime", fmt.Errorf("%s: %w", s.kubelet.Endpoint, err)), ""
	}
	return fact("runtime", "%s", version), version
}

// heldFact is about the pods that hold devices of the kubelet, and keep says what becomes of them.
func (u units) heldFact(s *nodeState, keep string) Fact {
	return u.holdersNotice(s, keep, "take the files out of "+u.options.PluginDir+" until these pods are gone, or "+
		"say with --plugins-for-other-devices that theirs are others")
}

// plan implements installation, for the units and the configuration file.
func (u units) plan(ctx context.Context, s *nodeState, j *journal) error {
	if !u.options.Host.exists(u.options.ConfigFile) {
		content, err := u.options.Kubecri.Configuration(s.kubelet)
		if err != nil {
			return err
		}
		j.Installed = append(j.Installed, installed(u.options.ConfigFile, content))
	}
	// A unit that is there already is the administrator's.
	for _, name := range u.names {
		unit, err := u.unit(ctx, name)
		if err != nil {
			return err
		}
		if unit["LoadState"] != "loaded" {
			content, err := u.options.Kubecri.Unit(name)
			if err != nil {
				return err
			}
			j.Installed = append(j.Installed, installed(filepath.Join(u.options.SystemdDir, name), content))
		}
		if name == serviceUnit {
			j.StartServices = unit["ActiveState"] != "active"
		}
	}
	for _, change := range j.Installed {
		j.Directories = append(j.Directories, u.missingDirectories(filepath.Dir(change.Path))...)
	}
	slices.Sort(j.Directories) // the outer ones first
	j.Directories = slices.Compact(j.Directories)
	return nil
}

func installed(path string, content []byte) change {
	return change{Path: path, After: file{Exists: true, Mode: installedMode, Content: content}}
}

// missingDirectories returns the directories on the way to path that are not there, itself
// included.
func (u units) missingDirectories(path string) []string {
	if u.options.Host.exists(path) {
		return nil
	}
	return append(u.missingDirectories(filepath.Dir(path)), path)
}

// start returns the step that installs kubecri and starts it. ready waits until it can be called,
// which is described as readiness.
func (u units) start(j *journal, readiness string, ready func(context.Context, *journal) error) step {
	s := step{name: "services"}
	for _, change := range j.Installed {
		s.actions = append(s.actions, "write "+change.Path)
	}
	if j.StartServices {
		s.actions = append(s.actions, "enable and start "+strings.Join(u.names, " and "))
	}
	s.actions = append(s.actions, "wait until "+readiness)
	s.do = func(ctx context.Context, j *journal, _ kubernetes.Interface) error {
		if err := u.install(ctx, j); err != nil {
			return err
		}
		return ready(ctx, j)
	}
	return s
}

// install writes kubecri's files, and starts it.
func (u units) install(ctx context.Context, j *journal) error {
	if err := u.makeDirectories(j); err != nil {
		return err
	}
	for _, change := range j.Installed {
		if err := u.installFile(change); err != nil {
			return err
		}
	}
	if err := u.systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	if !j.StartServices {
		return nil
	}
	return u.systemctl(ctx, append([]string{"enable", "--now"}, u.names...)...)
}

// makeDirectories makes the directories that were missing.
func (u units) makeDirectories(j *journal) error {
	for _, path := range j.Directories {
		if err := os.Mkdir(u.options.Host.path(path), directoryMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// installFile writes a file of kubecri. One that is there by now stays: it was written before a
// crash, or it is the administrator's.
func (u units) installFile(change change) error {
	now, err := u.options.Host.read(change.Path)
	switch {
	case err != nil:
		return err
	case !now.Exists:
		return u.options.Host.write(change.Path, change.After)
	case !now.same(change.After):
		u.progress("%s was changed by another program or user: it is kept", change.Path)
	}
	return nil
}

// stop returns the step that stops kubecri, takes away what it published, and removes what was
// installed.
func (u units) stop(j *journal) step {
	s := step{name: "services", do: u.uninstall}
	if j.StartServices {
		s.actions = append(s.actions,
			"stop and disable "+strings.Join(u.names, " and "), "take away what kubecri published on the node")
	}
	for _, change := range j.Installed {
		s.actions = append(s.actions, "remove "+change.Path)
	}
	return s
}

func (u units) uninstall(ctx context.Context, j *journal, client kubernetes.Interface) error {
	if j.StartServices {
		for _, name := range u.names {
			unit, err := u.unit(ctx, name)
			if err != nil {
				return err
			}
			if unit["LoadState"] != "loaded" {
				continue // it was not installed, or is removed already
			}
			if err := u.systemctl(ctx, "disable", "--now", name); err != nil {
				return err
			}
		}
		if err := u.options.Kubecri.Withdraw(ctx, client, j.Node); err != nil {
			return err
		}
	}
	for _, change := range j.Installed {
		if err := u.restore(change, ""); err != nil {
			return err
		}
	}
	if err := u.systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	if err := errors.Join(u.removeState(ctx, j, client), u.removeOwned(j)); err != nil {
		return err
	}
	for _, directory := range slices.Backward(j.Directories) {
		// One that is not empty has something of another user's.
		_ = os.Remove(u.options.Host.path(directory))
	}
	return nil
}
