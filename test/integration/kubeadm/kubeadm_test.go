// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeadm tests the patches for kubeadm with kubeadm's own code: what an upgrade makes of
// the scheduler's static pod, with and without them.
package kubeadm

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/controlplane"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/upgrade"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/config"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/etcd"

	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/scheduler"
)

const deployed = "../../../deploy/kubeadm/"

// together returns a directory with all patches of some directories.
func together(t *testing.T, directories ...string) string {
	t.Helper()
	all := t.TempDir()
	for _, directory := range directories {
		if err := os.CopyFS(all, os.DirFS(filepath.Join(deployed, directory))); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// controlPlane is the directory of a control plane, as kubeadm sees it.
type controlPlane struct {
	*testing.T
	directory string
	config    *kubeadm.InitConfiguration
}

// install makes a control plane with upstream's scheduler, to which the user gave an argument.
func install(t *testing.T) *controlPlane {
	t.Helper()
	c := &controlPlane{T: t, directory: t.TempDir()}
	var err error
	c.config, err = config.DefaultedStaticInitConfiguration()
	c.must(err)
	c.config.Scheduler.ExtraArgs = []kubeadm.Arg{{Name: "v", Value: "3"}}
	c.must(os.Mkdir(filepath.Join(c.directory, constants.ManifestsSubDirName), 0o700))
	c.must(controlplane.CreateInitStaticPodManifestFiles(filepath.Join(c.directory, constants.ManifestsSubDirName), "",
		c.config, false))
	return c
}

func (c *controlPlane) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// upgrade is what kubeadm upgrade does to the static pods.
func (c *controlPlane) upgrade(patches string) {
	c.Helper()
	paths, err := upgrade.NewKubeStaticPodPathManagerUsingTempDirs(c.directory, patches, false, false)
	c.must(err)
	noEtcd := struct{ etcd.ClusterInterrogator }{} // which is not upgraded
	c.must(upgrade.StaticPodControlPlane(nil, kubelet{}, paths, c.config, false, false, noEtcd, noEtcd))
}

// scheduler returns the static pod of the scheduler.
func (c *controlPlane) scheduler() *corev1.Pod {
	c.Helper()
	content, err := os.ReadFile(filepath.Join(c.directory, constants.ManifestsSubDirName, "kube-scheduler.yaml"))
	c.must(err)
	pod := &corev1.Pod{}
	c.must(yaml.UnmarshalStrict(content, pod))
	return pod
}

func TestAnUpgradeWithThePatchesKeepsOurScheduler(t *testing.T) {
	for name, test := range map[string]struct {
		directories []string
		flags       []string
	}{
		"without seals": {[]string{"patches"}, []string{"--devschedpath"}},
		"with seals":    {[]string{"patches", "patches-seals"}, []string{"--devschedpath", "--device-seal-key"}},
	} {
		t.Run(name, func(t *testing.T) {
			patches := together(t, test.directories...)
			c := install(t)
			upstream := c.scheduler()
			c.upgrade(patches)
			ours := c.scheduler()
			checkScheduler(t, upstream, ours, test.flags)

			// The next upgrade finds nothing to change.
			c.upgrade(patches)
			if diff := cmp.Diff(ours, c.scheduler()); diff != "" {
				t.Errorf("the second upgrade changes (-before +after):\n%s", diff)
			}
			// One without the patches does.
			c.upgrade("")
			if diff := cmp.Diff(upstream, c.scheduler()); diff != "" {
				t.Errorf("an upgrade without the patches leaves (-upstream's +now):\n%s", diff)
			}
		})
	}
}

// checkScheduler checks that ours is upstream's pod but for the program, these flags, and what they
// need.
func checkScheduler(t *testing.T, upstream, ours *corev1.Pod, flags []string) {
	t.Helper()
	before, after := upstream.Spec.Containers[0], ours.Spec.Containers[0]
	if !slices.Contains(before.Command, "--v=3") {
		t.Fatalf("the user's argument is not in %q", before.Command)
	}
	if common := after.Command[1:len(before.Command)]; !slices.Equal(before.Command[1:], common) {
		t.Errorf("kubeadm's arguments were %q, and are %q", before.Command[1:], common)
	}
	if err := scheduler.NewCommand().ParseFlags(after.Command[1:]); err != nil {
		t.Error(err)
	}
	for _, flag := range flags {
		if !slices.ContainsFunc(after.Command, func(arg string) bool { return strings.HasPrefix(arg, flag+"=") }) {
			t.Errorf("no %s in %q", flag, after.Command)
		}
	}

	volumes := map[string]corev1.Volume{}
	for _, volume := range ours.Spec.Volumes {
		volumes[volume.Name] = volume
	}
	// Each file that an argument names is the host's.
	paths := []string{after.Command[0]}
	for _, arg := range after.Command[1:] {
		if _, value, _ := strings.Cut(arg, "="); strings.HasPrefix(value, "/") {
			paths = append(paths, value)
		}
	}
	for _, path := range paths {
		if !slices.ContainsFunc(after.VolumeMounts, func(mount corev1.VolumeMount) bool {
			volume, ok := volumes[mount.Name]
			return ok && volume.HostPath != nil && within(path, mount.MountPath)
		}) {
			t.Errorf("nothing mounts %s", path)
		}
	}

	// Nothing else is changed.
	after.Image, after.Command = before.Image, before.Command
	after.VolumeMounts = after.VolumeMounts[:len(before.VolumeMounts)]
	ours = ours.DeepCopy()
	ours.Spec.Containers[0] = after
	ours.Spec.Volumes = ours.Spec.Volumes[:len(upstream.Spec.Volumes)]
	if diff := cmp.Diff(upstream, ours); diff != "" {
		t.Errorf("the patches change also (-upstream's +ours):\n%s", diff)
	}
}

func within(path, directory string) bool {
	return path == directory || strings.HasPrefix(path, directory+"/")
}

func TestKubeadmsConfigurationsNameThePatches(t *testing.T) {
	upgrade, err := config.LoadUpgradeConfigurationFromFile(deployed+"upgrade.yaml",
		config.LoadOrDefaultConfigurationOptions{})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(deployed + "init.yaml")
	if err != nil {
		t.Fatal(err)
	}
	initial, err := config.BytesToInitConfiguration(append([]byte("apiVersion: kubeadm.k8s.io/v1beta4\n"+
		"kind: ClusterConfiguration\nkubernetesVersion: v1.37.1\n"), content...), true)
	if err != nil {
		t.Fatal(err)
	}
	for name, patches := range map[string]*kubeadm.Patches{
		"init": initial.Patches, "upgrade apply": upgrade.Apply.Patches, "upgrade node": upgrade.Node.Patches,
	} {
		if patches == nil || patches.Directory != "/etc/kubernetes/patches" {
			t.Errorf("%s: %+v", name, patches)
		}
	}
}

// kubelet stands in for one that starts each static pod at once: no pod runs in this test.
type kubelet struct{}

func (kubelet) WaitForControlPlaneComponents(map[string]*corev1.Pod, string) error {
	return errors.New("unexpected")
}
func (kubelet) WaitForPodsWithLabel(string) error                         { return nil }
func (kubelet) WaitForStaticPodSingleHash(string, string) (string, error) { return "", nil }
func (kubelet) WaitForStaticPodHashChange(string, string, string) error   { return nil }
func (kubelet) WaitForStaticPodControlPlaneHashes(string) (map[string]string, error) {
	return map[string]string{}, nil
}
func (kubelet) WaitForKubelet(string, int32) error { return nil }
func (kubelet) SetTimeout(time.Duration)           {}
