// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
)

// cri puts a kubecri that systemd starts between the kubelet and the container runtime.
type cri struct{ units }

// kubelet implements installation.
func (c cri) kubelet(ctx context.Context) (Kubelet, *Fact) {
	k, err := c.findKubelet(ctx)
	if err == nil {
		err = c.findSources(&k)
	}
	if err != nil {
		return Kubelet{}, unusableKubelet(err)
	}
	return k, nil
}

// facts implements installation.
func (c cri) facts(ctx context.Context, s *nodeState) []Fact {
	return c.commonFacts(ctx, s, ownFacts{
		endpoint: c.configuredFact(s), runtime: c.runtimeFact(ctx, s), holders: c.holdersFact(s),
		nri: c.nriFacts(ctx, s),
	})
}

// configuredFact is about where the kubelet's endpoint is configured.
func (c cri) configuredFact(s *nodeState) Fact {
	var paths []string
	for _, source := range s.kubelet.sources {
		paths = append(paths, source.path)
	}
	return fact("endpoint", "%s; configured in %s", s.kubelet.Endpoint, strings.Join(paths, ", "))
}

// runtimeFact is about the container runtime.
func (c cri) runtimeFact(ctx context.Context, s *nodeState) Fact {
	found, version := c.units.runtimeFact(ctx, s)
	if strings.HasPrefix(version, "cri-o") && !strings.HasSuffix(c.options.Endpoint, "/crio/crio.sock") {
		return found.blocks("in front of CRI-O, kubecri's endpoint must end in run/crio/crio.sock: the kubelet " +
			"chooses by it how to read statistics; set containerRuntimeEndpoint in " + c.options.ConfigFile)
	}
	return found
}

// nriFacts are about NRI, which kubecri does not need.
func (c cri) nriFacts(ctx context.Context, s *nodeState) []Fact {
	switch socket := c.options.NRISocket; {
	case socket == "":
		return []Fact{fact("NRI", "not used: nriSocket is empty")}
	case !c.options.Host.exists(socket):
		return []Fact{fact("NRI", "off; kubecri does not need it")}
	}
	found := fact("NRI", "on; its plugins go on working next to kubecri, which registers there to be required")
	return append([]Fact{found}, c.validatorFacts(ctx, s)...)
}

// holdersFact implements installation. A kubelet that starts fails a pod with a device of its own
// in a container that does not run. One that runs along can be waited for; an init container that
// has ended never runs again.
func (c cri) holdersFact(s *nodeState) Fact {
	if initial := s.initialHolders(); len(s.holders()) > 0 && len(initial) > 0 {
		return fact("holders", "devices of the kubelet are held by init containers: %s", strings.Join(initial, ", ")).
			blocks("the kubelet fails these pods when it restarts: drain them, or enrol when they have ended")
	}
	return c.heldFact(s, keepDevices+"; the kubelet is restarted when all of their containers run")
}

// plan implements installation.
func (c cri) plan(ctx context.Context, s *nodeState, j *journal) error {
	j.Endpoint = c.options.Endpoint
	if err := c.units.plan(ctx, s, j); err != nil {
		return err
	}
	for _, source := range s.kubelet.sources {
		change, err := c.redirect(source, c.options.Endpoint)
		if err != nil {
			return err
		}
		j.Kubelet = append(j.Kubelet, change)
	}
	return nil
}

// enrolSteps implements installation.
func (c cri) enrolSteps(j *journal) []step {
	kubelet := step{name: "kubelet", do: c.switchKubelet}
	for _, change := range j.Kubelet {
		kubelet.actions = append(kubelet.actions,
			fmt.Sprintf("in %s, replace the endpoint by %s", change.Path, j.Endpoint))
	}
	kubelet.actions = append(kubelet.actions, restartAction(j))
	return []step{c.start(j, "the runtime answers at "+j.Endpoint, c.awaitServing), kubelet}
}

// leaveSteps implements installation.
func (c cri) leaveSteps(j *journal) []step {
	kubelet := step{name: "kubelet", do: c.switchKubeletBack}
	for _, change := range j.Kubelet {
		kubelet.actions = append(kubelet.actions, "make "+change.Path+" what it was")
	}
	kubelet.actions = append(kubelet.actions, restartAction(j))
	return []step{kubelet, c.stop(j)}
}

func restartAction(j *journal) string {
	return fmt.Sprintf("restart %s, and wait until node %s is ready", j.KubeletUnit, j.Node)
}

// awaitServing waits until kubecri passes calls on.
func (c cri) awaitServing(ctx context.Context, j *journal) error {
	err := c.await(ctx, runtimeTimeout, "the runtime answers at "+j.Endpoint, func(ctx context.Context) error {
		_, err := c.options.Runtimes.Version(ctx, j.Endpoint)
		return err
	})
	if err != nil {
		return fmt.Errorf("kubecri does not serve the runtime: %w; see journalctl -u %s", err, serviceUnit)
	}
	return nil
}

// awaitVacated implements installation. It waits until the kubelet can be restarted, unless an
// enrolment is taken back that did not come to its end.
func (c cri) awaitVacated(ctx context.Context, j *journal, client kubernetes.Interface) error {
	if s := j.state(); s != enrolled && s != vacating {
		return nil
	}
	return c.awaitContainers(ctx, j, client)
}

// awaitContainers waits for a moment in which a restart of the kubelet fails no pod: each container
// with a device of the kubelet runs.
func (c cri) awaitContainers(ctx context.Context, j *journal, client kubernetes.Interface) error {
	return c.await(ctx, containersTimeout, "all containers run that hold devices of the kubelet",
		func(ctx context.Context) (err error) {
			s := &nodeState{}
			if s.pods, err = podsOn(ctx, client, j.Node); err != nil {
				return err
			}
			s.devices, err = kubeletstate.Read(c.options.Host.path(c.options.CheckpointPath))
			if err != nil {
				return err
			}
			node, err := client.CoreV1().Nodes().Get(ctx, j.Node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if down := s.down(node.Status.NodeInfo.KubeletVersion); len(down) > 0 {
				return fmt.Errorf("a restart of the kubelet would fail pods, of which containers with devices do not "+
					"run now: %s", strings.Join(down, ", "))
			}
			return nil
		})
}

// switchKubelet makes the kubelet call kubecri.
func (c cri) switchKubelet(ctx context.Context, j *journal, client kubernetes.Interface) error {
	if err := c.awaitContainers(ctx, j, client); err != nil {
		return err
	}
	stale, err := c.refresh(j)
	if err != nil {
		return err
	}
	j.Switched, j.Unwritten = true, false
	if err := c.save(j); err != nil {
		return err
	}
	for _, change := range stale {
		if err := c.options.Host.write(change.Path, change.After); err != nil {
			return err
		}
	}
	began, err := secondAfterHeartbeat(ctx, client, j.Node)
	if err != nil {
		return err
	}
	alive, err := alivePods(ctx, client, j.Node)
	if err != nil {
		return err
	}
	return c.restartKubelet(ctx, j, func(ctx context.Context) error {
		if err := readySince(ctx, client, j.Node, began); err != nil {
			return err
		}
		flag, err := c.startedWith(ctx, j)
		if err != nil {
			return err
		}
		if flag != "" && !sameEndpoint(flag, j.Endpoint) {
			return &final{fmt.Errorf("its process has --%s=%s, so something else than the files that were changed "+
				"says so: see systemctl cat %s", endpointFlag, flag, j.KubeletUnit)}
		}
		return checkNoneFailed(ctx, client, j.Node, alive)
	})
}

// startedWith returns the endpoint that the kubelet's process was given as a flag, if it was.
func (c cri) startedWith(ctx context.Context, j *journal) (string, error) {
	unit, err := c.unit(ctx, j.KubeletUnit)
	if err != nil {
		return "", err
	}
	flags, err := c.kubeletFlags(unit)
	return flags[endpointFlag], err
}

// switchKubeletBack makes the kubelet call what it called before.
func (c cri) switchKubeletBack(ctx context.Context, j *journal, client kubernetes.Interface) error {
	for _, change := range j.Kubelet {
		if err := c.restore(change, j.Endpoint); err != nil {
			return err
		}
	}
	if !j.Switched {
		return nil
	}
	began, err := secondAfterHeartbeat(ctx, client, j.Node)
	if err != nil {
		began = time.Now().Truncate(time.Second) // the kubelet needs no API server for its containers
	}
	err = c.restartKubelet(ctx, j, func(ctx context.Context) error {
		if err := readySince(ctx, client, j.Node, began); err != nil {
			return err
		}
		flag, err := c.startedWith(ctx, j)
		if err == nil && sameEndpoint(flag, j.Endpoint) {
			err = &final{fmt.Errorf("its process still has --%s=%s: see systemctl cat %s", endpointFlag, flag,
				j.KubeletUnit)}
		}
		return err
	})
	if err != nil {
		return err
	}
	j.Switched = false
	return c.save(j)
}
