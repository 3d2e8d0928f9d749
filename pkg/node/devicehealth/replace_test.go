// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehealth

import (
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/pods"
)

func TestReplaceRequestsAfterTheGracePeriodAndEvictsWithoutAnAnswer(t *testing.T) {
	run(t, Rule{Replace, time.Minute}, nil, func(m *machine) {
		m.restarts("0")
		m.breaks("0 Xid79")
		due := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
		m.expect("it fails", nodeIll, podIll+"; the container is given another one if it is so at "+due)
		time.Sleep(time.Minute - time.Millisecond)
		m.expect("just before")
		time.Sleep(time.Millisecond)
		m.expect("then", "requests 0: [main]")
		time.Sleep(answerTimeout / 2)
		m.restart() // kubecri
		time.Sleep(answerTimeout/2 - time.Millisecond)
		m.expect("just before the answer is late")
		time.Sleep(time.Millisecond)
		m.expect("it is late", "evicted 0", "pod 0 DeviceFailureEvicted: the pod is evicted: "+ill)
	})
}

func TestADeviceThatIsHealthyAgainIsNotReplaced(t *testing.T) {
	run(t, Rule{Replace, 0}, nil, func(m *machine) {
		m.restarts("0")
		m.breaks("0 Xid79")
		m.inspect()
		if !m.granted[0].Requests() {
			t.Error("nothing is requested")
		}
		m.breaks()
		m.expect("healthy again", "node Normal: device resource/group/gpu/0 is healthy again", "requests 0: []")
		time.Sleep(time.Hour)
		m.expect("nothing follows")
		m.expectCondition("healthy again", "0", "DevicesHealthy=True DevicesHealthy")
	})
}

func TestAPodWithAReplacedDeviceIsHealthy(t *testing.T) {
	run(t, Rule{Replace, 0}, nil, func(m *machine) {
		m.restarts("0")
		m.breaks("0 Xid79")
		m.inspect()
		m.stop() // the checkpoint of grants says nothing here when it changes
		m.granted[0].Pending = nil
		m.granted[0].PodInfo = m.granted[1].PodInfo
		m.start()
		m.inspect()
		m.expectCondition("with another device", "0", "DevicesHealthy=True DevicesHealthy")
		time.Sleep(time.Hour)
		m.expect("nothing follows")
	})
}

func TestReplaceMeansEvictWhereDevicesCannotBeReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*machine)
		why     string
	}{
		"the container may not be started again": {func(*machine) {},
			`container "main" is not started again after every exit code`},
		"the node does not replace devices": {func(m *machine) {
			m.stop()
			m.why = "the node does not enforce seals"
			m.restarts("0")
			m.start()
		}, "the node does not enforce seals"},
		"the kubelet gave the pod its devices": {func(m *machine) {
			m.restarts("0")
			m.granted[0].Adopted = true
		}, "the kubelet gave the pod its devices"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Rule{Replace, time.Minute}, nil, func(m *machine) {
				test.prepare(m)
				m.breaks("0 Xid79")
				due := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
				m.expect("it fails", nodeIll, podIll+"; the pod is evicted if it is so at "+due+
					", as its devices are not replaced: "+test.why)
				time.Sleep(time.Minute)
				m.expect("then", "evicted 0", "pod 0 DeviceFailureEvicted: the pod is evicted: "+ill)
			})
		})
	}
}

func TestAPodWithAnotherPolicyHasItsRequestWithdrawn(t *testing.T) {
	run(t, Rule{Replace, 0}, nil, func(m *machine) {
		m.restarts("0")
		m.breaks("0 Xid79")
		m.inspect()
		m.wants("0", "Ignore", "")
		m.expect("another policy", podIll+"; the container is left alone", "requests 0: []")
		m.wants("0", "Replace", "")
		m.inspect()
		m.pods.change(func(all map[string]pods.Pod) {
			pod := all["0"]
			pod.Failure.Terminating = true
			all["0"] = pod
		})
		m.expect("it is being deleted", "requests 0: []")
	})
}

// unstarted makes the kubelet report that the container of a pod was never created, or that it was.
func (m *machine) unstarted(id string, containers ...string) {
	m.pods.change(func(all map[string]pods.Pod) {
		pod := all[id]
		pod.Unstarted = containers
		all[id] = pod
	})
}

func TestAContainerThatNeverRanGetsAnotherDeviceByDefault(t *testing.T) {
	run(t, Rule{Policy: Ignore}, nil, func(m *machine) {
		m.unstarted("0", "main")
		m.breaks("0 Xid79")
		due := time.Now().Add(unstartedDelay).UTC().Format(time.RFC3339)
		m.expect("it fails", nodeIll,
			podIll+"; the container, which never ran, is given another one if it is so at "+due)
		time.Sleep(unstartedDelay)
		m.expect("then", "requests 0: [main]")
		time.Sleep(answerTimeout)
		m.expect("without an answer", "evicted 0", "pod 0 DeviceFailureEvicted: the pod is evicted: "+ill)
	})
}

func TestAPodWhoseContainerNeverRanIsEvictedWhereDevicesAreNotReplaced(t *testing.T) {
	run(t, Rule{Policy: Ignore}, nil, func(m *machine) {
		m.stop()
		m.why = "the node does not enforce seals"
		m.unstarted("0", "main")
		m.start()
		m.breaks("0 Xid79")
		due := time.Now().Add(unstartedDelay).UTC().Format(time.RFC3339)
		m.expect("it fails", nodeIll, podIll+"; the pod is evicted if it is so at "+due+
			", as its devices are not replaced: the node does not enforce seals")
		time.Sleep(unstartedDelay)
		m.expect("then", "evicted 0", "pod 0 DeviceFailureEvicted: the pod is evicted: "+ill)
	})
}

func TestAContainerThatHasStartedIsNotReplaced(t *testing.T) {
	run(t, Rule{Policy: Ignore}, nil, func(m *machine) {
		m.unstarted("0", "main")
		m.breaks("0 Xid79")
		m.inspect()
		m.unstarted("0")
		m.expect("it has started", podIll+"; the container is left alone")
		time.Sleep(time.Hour)
		m.expect("nothing follows")
	})
}

func TestAPodWithPolicyIgnoreIsNotTouched(t *testing.T) {
	run(t, Rule{Policy: Ignore}, nil, func(m *machine) {
		m.unstarted("0", "main")
		m.wants("0", "Ignore", "")
		m.breaks("0 Xid79")
		m.expect("it fails", nodeIll, podIll+"; the container, which never ran, is left alone")
		time.Sleep(time.Hour)
		m.expect("nothing follows")
	})
}
