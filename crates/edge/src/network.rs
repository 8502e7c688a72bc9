//! A range of addresses, as `10.0.0.0/8`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// All addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    first: IpAddr,
    bits: u8,
}

/// Why a text is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// It is not written as one.
    #[error("write it as `10.0.0.0/8`, `2001:db8::/32`, or as one address")]
    Malformed,
    /// The address has bits behind the network's.
    #[error("its address is within the network: write `{0}`")]
    Within(Network),
}

impl Network {
    /// Whether an address lies in it. An IPv4 address in IPv6 form is the IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4() && first_of(address, self.bits) == self.first
    }
}

/// The address with all but its first bits zero.
fn first_of(address: IpAddr, bits: u8) -> IpAddr {
    let bits = u32::from(bits);
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(u32::BITS - bits).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(u128::BITS - bits).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| NetworkError::Malformed)?;
        let address = address.to_canonical();
        let most = if address.is_ipv4() { 32 } else { 128 };
        let plain = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let bits = match bits {
            None => most,
            Some(text) => {
                let bits = Some(text).filter(plain).and_then(|text| text.parse().ok());
                bits.filter(|&bits| bits <= most).ok_or(NetworkError::Malformed)?
            }
        };
        let network = Self { first: first_of(address, bits), bits };
        if network.first == address { Ok(network) } else { Err(NetworkError::Within(network)) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn contains(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn an_address_lies_within_or_not() {
        assert!(contains("10.0.0.0/8", "10.255.0.1") && !contains("10.0.0.0/8", "11.0.0.0"));
        assert!(contains("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(contains("0.0.0.0/0", "8.8.8.8") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("::/0", "::1") && !contains("::/0", "8.8.8.8"));
        assert!(contains("127.0.0.1", "127.0.0.1") && !contains("127.0.0.1", "127.0.0.2"));
        assert!(contains("2001:db8::/33", "2001:db8:7fff::1"));
        assert!(!contains("2001:db8::/33", "2001:db8:8000::1"));
    }

    #[test]
    fn mistakes_are_told() {
        for bad in ["", "/8", "10.0.0.0/", "10.0.0.0/33", "::/129", "a/8", "10.0.0.0/+8", "10/8"] {
            assert_eq!(bad.parse::<Network>(), Err(NetworkError::Malformed), "{bad:?}");
        }
        let words = "10.1.2.3/8".parse::<Network>().unwrap_err().to_string();
        assert!(words.contains("`10.0.0.0/8`"), "{words}");
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_comparison_of_bits(
            one in any::<[u8; 4]>(), flip in 0_u32..32, bits in 0_u8..=32,
        ) {
            let one = u32::from_be_bytes(one);
            let other = one ^ (1 << (31 - flip));
            let network = Network { first: first_of(IpAddr::V4(one.into()), bits), bits };
            prop_assert!(network.contains(IpAddr::V4(one.into())));
            prop_assert_eq!(network.contains(IpAddr::V4(other.into())), flip >= u32::from(bits));
            let text = network.to_string();
            prop_assert_eq!(text.parse(), Ok(network));
        }
    }
}
