//! The received share of each way to receive, by traffic, as an SVG plot.

use super::Row;
use crate::output::Stop;
use plotters::prelude::*;
use std::path::Path;

/// Width and height in pixels.
const SIZE: (u32, u32) = (900, 500);

/// Space for the labels of an axis, in pixels.
const LABELS: u32 = 45;

/// Colours that differ in brightness too, for readers who cannot distinguish hues (Okabe and Ito, 2008).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(240, 228, 66),
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
];

/// Writes the plot to a file. The traffic is in the order of `sizes`.
pub fn write(path: &Path, sizes: &[String], rows: &[Row]) -> Result<(), Stop> {
    let svg = draw(sizes, rows).map_err(|e| Stop::error(format_args!("--plot: {e}")))?;
    std::fs::write(path, svg).map_err(|e| Stop::error(format_args!("--plot {}: {e}", path.display())))
}

fn draw(sizes: &[String], rows: &[Row]) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(15)
            .caption("Received share of the sent frames", ("sans-serif", 18))
            .set_label_area_size(LabelAreaPosition::Left, LABELS)
            .set_label_area_size(LabelAreaPosition::Bottom, LABELS)
            .build_cartesian_2d((0..sizes.len().saturating_sub(1)).into_segmented(), 0.0..100.0)?;
        let label = |segment: &SegmentValue<usize>| match segment {
            SegmentValue::CenterOf(i) => sizes.get(*i).cloned().unwrap_or_default(),
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_desc("traffic: frame size in bytes, or name")
            .y_desc("%")
            .x_labels(sizes.len())
            .x_label_formatter(&label)
            .draw()?;
        for (i, (name, points)) in lines(sizes, rows).into_iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let places = points.iter().map(|(place, share)| (SegmentValue::CenterOf(*place), *share));
            chart
                .draw_series(LineSeries::new(places, colour.stroke_width(2)).point_size(3))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}

/// A line of the plot: its name, and for each traffic its place on the axis and the received share in percent.
type PlotLine = (String, Vec<(usize, f64)>);

/// Returns a line for each method and number of threads.
fn lines(sizes: &[String], rows: &[Row]) -> Vec<PlotLine> {
    let mut lines: Vec<PlotLine> = Vec::new();
    for row in rows {
        let name =
            if row.threads == 1 { row.method.to_owned() } else { format!("{}, {} threads", row.method, row.threads) };
        let Some(place) = sizes.iter().position(|size| *size == row.traffic) else { continue };
        let point = (place, 100.0 * row.received_share.median);
        match lines.iter_mut().find(|(other, _)| *other == name) {
            Some((_, points)) => points.push(point),
            None => lines.push((name, vec![point])),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::MedianRange;

    #[test]
    fn each_method_and_number_of_threads_has_a_line() {
        let row = |method, traffic: &str, threads, share| Row {
            method,
            traffic: traffic.to_owned(),
            threads,
            seconds: 1.0,
            repeat: 1,
            sent_mpps: MedianRange::of([1.0]),
            received_share: MedianRange::of([share]),
            cores: MedianRange::of([1.0]),
            memory_bytes: 1,
            sent: 100,
            received: 50,
            reported_lost: 50,
        };
        let rows = [
            row("tpacket", "60", 1, 0.5),
            row("tpacket", "60", 2, 0.75),
            row("tpacket", "imix", 1, 1.0),
            row("af_xdp", "imix", 1, 0.25),
        ];
        let sizes = ["60".to_owned(), "imix".to_owned()];
        assert_eq!(
            lines(&sizes, &rows),
            [
                ("tpacket".to_owned(), vec![(0, 50.0), (1, 100.0)]),
                ("tpacket, 2 threads".to_owned(), vec![(0, 75.0)]),
                ("af_xdp".to_owned(), vec![(1, 25.0)]),
            ]
        );
        let svg = draw(&sizes, &rows).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for text in ["tpacket, 2 threads", "af_xdp", "imix"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }
}
