package redis

import (
	"strconv"
	"strings"
	"sync"
)

const slotCount = 16384

// slotOf is the hash slot of a key in Redis Cluster.
func slotOf(key string) uint16 {
	if tag := hashTag(key); tag != "" {
		key = tag
	}
	return crc16(key) % slotCount
}

// hashTag is the part of a key that alone decides its slot: what stands between the first "{" and the first "}" after
// it, if that is not empty. "" says that the whole key decides.
func hashTag(key string) string {
	_, rest, found := strings.Cut(key, "{")
	if !found {
		return ""
	}
	tag, _, found := strings.Cut(rest, "}")
	if !found {
		return ""
	}
	return tag
}

// tagFor is a short hash tag, letters and digits only, of a given slot.
func tagFor(slot uint16) string { return strconv.FormatUint(uint64(tags()[slot]), 36) }

// tags counts upwards until every slot has been met once: some 200,000 steps, a few milliseconds, once in a process.
var tags = sync.OnceValue(func() *[slotCount]uint32 {
	var found [slotCount]uint32
	var have [slotCount]bool
	for n, missing := uint32(0), slotCount; missing > 0; n++ {
		if slot := crc16(strconv.FormatUint(uint64(n), 36)) % slotCount; !have[slot] {
			found[slot], have[slot] = n, true
			missing--
		}
	}
	return &found
})

// crc16 is CRC-16/XMODEM, which Redis Cluster uses.
func crc16(s string) uint16 {
	var crc uint16
	for i := range len(s) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^s[i]]
	}
	return crc
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
