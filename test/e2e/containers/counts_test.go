// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/kubedevice/kubedevice/test/cluster"
)

// counts are those of the containers of an attempt.
type counts struct {
	created, started, refused int
	// read are those whose config.json was read.
	read int
	// acceptable are those that have nothing in them for which kubecri refuses a container, and
	// acceptableStarted are those of them that were started.
	acceptable, acceptableStarted int
	// allocated are those that were started with a device.
	allocated int
}

// add counts a container. err is why it was not started.
func (c *counts) add(t *testing.T, n *node, p pod, of container, err error) {
	t.Helper()
	c.created++
	acceptable := isAcceptable(n.mode, p, of)
	if acceptable {
		c.acceptable++
	}
	if err != nil {
		c.refused++
		expectRefusal(t, "a container", err)
		return
	}
	c.started++
	if acceptable {
		c.acceptableStarted++
	}
}

// check fails the test if kubecri has refused containers without a reason, or if there were none
// that it had to let start.
func (c *counts) check(t *testing.T) {
	t.Helper()
	t.Logf("%d containers were started, %d refused; of %d without a reason to refuse them %d were started",
		c.started, c.refused, c.acceptable, c.acceptableStarted)
	if c.acceptable*10 < c.created {
		t.Errorf("%d of %d containers have nothing for which kubecri refuses them, want a tenth or more",
			c.acceptable, c.created)
	}
	if c.acceptableStarted < c.acceptable {
		t.Errorf("%d containers are refused without a reason", c.acceptable-c.acceptableStarted)
	}
}

// reasons are parts of kubecri's refusals of what pod and image contain. Every other refusal is
// none of the container's own, such as that kubecri has not decided in time.
var reasons = []string{
	" are allowed: ",
	"requests devices that the container was not allocated",
	"decides which devices the container runtime gives it, and cannot be overridden",
	"stands twice, in its image or in image and pod, and cannot be overridden",
}

// expectRefusal fails the test unless kubecri has refused for a reason that is the container's.
func expectRefusal(t *testing.T, what string, err error) {
	t.Helper()
	text := err.Error()
	isReason := func(reason string) bool { return strings.Contains(text, reason) }
	if !strings.Contains(text, "kubecri: ") || !slices.ContainsFunc(reasons, isReason) {
		t.Errorf("%s is refused: %.1500s", what, text)
	}
}

// Sizes in bytes, and a number of strings, that are below all bounds of kubecri's, with all that
// the runtime adds.
const (
	moderateContainer, moderatePod = 280 << 10, 420 << 10
	moderateStrings                = 9000
)

// isAcceptable reports whether a container of a pod has nothing in it for which kubecri refuses it:
// it is not large, requests no devices by mount or annotation, and what it requests by variables
// can be overridden in the mode. It knows nothing of kubecri's code.
func isAcceptable(mode cluster.Mode, p pod, c container) bool {
	all, texts := p.size(), p.strings()
	for _, other := range p.containers {
		all, texts = all+other.size(), texts+other.strings()
	}
	if c.size() > moderateContainer || p.size() > moderateContainer ||
		c.strings() > moderateStrings || p.strings() > moderateStrings ||
		mode == cluster.ModeNRI && (all > moderatePod || texts > moderateStrings) {
		return false
	}
	for key := range p.annotations {
		if strings.HasPrefix(key, "cdi.k8s.io/") {
			return false
		}
	}
	for _, mount := range c.GetMounts() {
		if listsDevices(mount.GetContainerPath()) {
			return false
		}
	}
	for volume := range c.image.config.Volumes {
		if listsDevices(volume) { // NRI does not tell it from a mount of the pod's
			return false
		}
	}
	env := c.environment()
	return isOverridable(mode, env) && !(p.requestsDevice(c) && slices.ContainsFunc(env, func(entry string) bool {
		name, value, _ := strings.Cut(entry, "=")
		return limits(name, value)
	}))
}

// isOverridable reports whether all that vendors' runtimes would obey of an environment can be
// overridden. The proxy appends to it, which is too late where a runtime takes the first or any,
// and AMD's runtime reserves what earlier ones request. NRI replaces the first of a name; of two
// that begin as a vendor's runtime obeys it, the second stays. What takes effect without a device
// has no value that does nothing.
func isOverridable(mode cluster.Mode, env []string) bool {
	if slices.ContainsFunc(env, needsNoDevice) {
		return false
	}
	if mode == cluster.ModeCRI {
		var c config
		c.Process.Env = env
		habana, set := c.first("HABANA_VISIBLE_DEVICES")
		card, isCard := c.first("WIDGET_CARDS_")
		if set && !strings.HasSuffix(habana, "=none") || isCard && !strings.HasSuffix(card, "=none") {
			return false
		}
		return !slices.ContainsFunc(env, func(entry string) bool {
			name, value, _ := strings.Cut(entry, "=")
			isAMDs := name == "AMD_VISIBLE_DEVICES" || strings.HasPrefix(name, "DOCKER_RESOURCE_")
			return strings.HasPrefix(entry, "ASCEND_VISIBLE_DEVICES=Ascend") || isAMDs && value != "none" ||
				name == "MTHREADS_VISIBLE_DEVICES" && value != "void"
		})
	}
	seen := map[string]bool{}
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		isMadeUp := slices.ContainsFunc([]string{"DOCKER_RESOURCE_", "HABANA_VISIBLE_DEVICES_", "WIDGET_CARDS_"},
			func(start string) bool { return strings.HasPrefix(name, start) })
		if isMadeUp && seen[name] {
			return false
		}
		seen[name] = true
	}
	return true
}

// environment returns the container's variables as containerd passes them on: the image's, then the
// pod's.
func (c container) environment() []string {
	env := slices.Clone(c.image.config.Env)
	for _, variable := range c.GetEnvs() {
		env = append(env, variable.GetKey()+"="+string(variable.GetValue()))
	}
	return env
}

// size returns about how many bytes the container and its image have in messages to NRI plugins,
// which bound them in both modes.
func (c container) size() int {
	size := proto.Size(c.ContainerConfig)
	for _, variable := range c.GetEnvs() {
		size += 2 * strings.Count(string(variable.GetValue()), notUTF8)
	}
	texts := slices.Clone(c.image.config.Env)
	if len(c.GetCommand())+len(c.GetArgs()) == 0 {
		texts = append(texts, c.image.config.Cmd...)
	}
	for key, value := range c.image.config.Labels {
		texts = append(texts, key, value)
	}
	for _, text := range texts {
		size += len(text) + 4
	}
	return size
}

// strings returns about how many strings the container and its image have in such messages.
func (c container) strings() int {
	return len(c.GetEnvs()) + len(c.GetCommand()) + len(c.GetArgs()) + 2*len(c.GetLabels()) +
		2*len(c.GetAnnotations()) + 6*len(c.GetMounts()) + len(c.image.config.Env) + len(c.image.config.Cmd) +
		2*len(c.image.config.Labels)
}

// strings returns how many strings the pod has without its containers.
func (p pod) strings() int { return 2*len(p.annotations) + 2*len(p.labels) }

// size returns about how many bytes the pod has without its containers.
func (p pod) size() (size int) {
	for _, all := range []map[string]string{p.annotations, p.labels} {
		for key, value := range all {
			size += len(key) + len(value) + 8
		}
	}
	return size
}

func TestARefusalWithoutAReasonOfTheContainersFailsTheTest(t *testing.T) {
	for text, is := range map[string]bool{
		`kubecri: container "c" of pod a/b: its request has 900000 bytes, and at most 3 are allowed: shorten it`: true,
		`kubecri: kubecri has not decided in the time that the container runtime gives to NRI plugins`:           false,
		"argument list too long": false,
	} {
		isReason := func(reason string) bool { return strings.Contains(text, reason) }
		if got := slices.ContainsFunc(reasons, isReason); got != is {
			t.Errorf("%s: %v", text, got)
		}
	}
}
