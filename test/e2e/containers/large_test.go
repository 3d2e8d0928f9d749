// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/test/image"
)

// memoryLimit is how much memory kubecri may take, in KiB, while pods with very large containers
// are started.
const memoryLimit = 200 << 10

// With NRI the runtime itself refuses such a container: it does not fit into a message.
func TestPodsWithVeryLargeContainersDoNotTakeTheProxysMemory(t *testing.T) {
	const count, size = 25, 12 << 20
	ctx := begin(t, 3*time.Minute)
	n := takeOver(ctx, t, 1)
	var sandboxes []*sandbox
	for range count {
		s, err := n.run(ctx, pod{annotations: map[string]string{}, containers: []container{
			largeContainer(size),
		}})
		if err != nil {
			t.Fatal(err)
		}
		sandboxes = append(sandboxes, s)
		defer s.remove(ctx, t)
	}
	before := peakMemory(t, n.Kubecri.PID())
	var creating sync.WaitGroup
	for _, s := range sandboxes {
		creating.Go(func() {
			_, err := s.create(ctx, largeContainer(size))
			if status.Code(err) != codes.FailedPrecondition {
				t.Errorf("a container with 12 MiB of variables: %v", err)
			}
		})
	}
	creating.Wait()
	peak := peakMemory(t, n.Kubecri.PID())
	t.Logf("kubecri's memory: %d MiB at most before, %d MiB with %d such pods", before>>10, peak>>10, count)
	if peak > memoryLimit {
		t.Errorf("kubecri took %d MiB, want at most %d", peak>>10, memoryLimit>>10)
	}
}

// largeContainer returns a container with that many bytes of variables.
func largeContainer(size int) container {
	c := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: image.Busybox},
		Linux: &runtimeapi.LinuxContainerConfig{}, LogPath: "main.log",
	}
	value := []byte(strings.Repeat("v", 100<<10))
	for i := range size / len(value) {
		c.Envs = append(c.Envs, &runtimeapi.KeyValue{Key: fmt.Sprint("LARGE_", i), Value: value})
	}
	return container{ContainerConfig: c}
}

// peakMemory returns the most memory that a process has taken, in KiB.
func peakMemory(t *testing.T, pid int) (kibibytes int) {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "VmHWM: %d kB", &kibibytes); err == nil {
			return kibibytes
		}
	}
	t.Fatal("there is no VmHWM")
	return 0
}
